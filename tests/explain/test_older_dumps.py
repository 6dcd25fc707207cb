"""A dump that was taken a moment before its peers' accuses nobody by what it does not show yet."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, world
from tests.simulator import Remains, collect, simulate
from tests.text_lines import DEFAULT, observed, short, status, timeout
from tests.verdicts import blame


def _rank(rank: int, done: int, pending: int, size: int = 4) -> Recorder:
    recorder = Recorder(rank, world(size)).call("all_reduce", times=done)
    return recorder.call("all_reduce", state="scheduled", times=pending) if pending else recorder


def test_where_nobody_waits_for_the_lag_no_device_is_named(tmp_path: Path) -> None:
    for rank in range(4):
        _rank(rank, 20 if rank else 18, 0 if rank else 2).write(tmp_path)
    report = analyze(tmp_path)
    assert report.status != "hang" and (report.verdict is None or not report.verdict.culprit_ranks)


def test_a_later_line_of_the_rank_itself_clears_it(tmp_path: Path) -> None:
    for rank in (0, 1, 3):
        _rank(rank, 20 if rank else 19, 1 if rank else 2).write(tmp_path)
    _rank(2, 20, 0).write(tmp_path)
    lines = [timeout(0, group=DEFAULT, seq=21, n=8), status(0, 21, 21, 20)]
    (tmp_path / "rank_0.log").write_text("\n".join(lines) + "\n")
    assert short(analyze(tmp_path))[:2] == ("stuck_rank", (2,))


def test_who_gives_up_on_a_call_behind_its_dump_had_finished_what_that_shows_open(tmp_path: Path) -> None:
    """Watchdogs count from the enqueue. Ranks 1 and 4 were dumped before their last call, which ranks 2 and 3 skipped."""
    groups = {"0": ("default_pg", range(8)), "1": ("dp", (0, 2, 4, 6)), "2": ("dp", (1, 3, 5, 7))}
    for rank in range(8):
        recorder, own = Recorder(rank, {n: g for n, g in groups.items() if rank in g[1]}), str(1 + rank % 2)
        for _ in range(12):
            recorder.call("all_reduce", own, line=41)
            recorder.call("all_reduce", line=43).call("all_reduce", line=45)
        early, skips = rank in (1, 4), rank in (2, 3)
        recorder.call("all_reduce", own, line=41, state="scheduled" if early else "completed")
        recorder.call("all_reduce", line=43, state="scheduled" if early else "completed")
        if skips:
            recorder.call("all_reduce", own, line=41, state="scheduled")
        elif not early:
            recorder.call("all_reduce", line=45, state="scheduled")
        recorder.write(tmp_path)
        waits = [timeout(rank, group=DEFAULT, seq=26, n=8), status(rank, 26, 26, 25)] if not skips else []
        (tmp_path / f"rank_{rank}.log").write_text("".join(f"{line}\n" for line in waits))
    assert short(analyze(tmp_path))[1] == (2, 3)


def test_one_call_of_lag_in_a_dump_alone_is_never_certain(tmp_path: Path) -> None:
    for rank in range(4):
        _rank(rank, 20 if rank else 19, 1 if rank else 2).write(tmp_path)
    cause, ranks, confidence = short(analyze(tmp_path))
    assert (cause, ranks) == ("gpu_stall", (0,)) and confidence == "medium"


def test_a_lag_of_several_proven_calls_is_a_device_that_stopped(tmp_path: Path) -> None:
    for rank in range(4):
        _rank(rank, 20 if rank else 17, 1 if rank else 4).write(tmp_path)
    assert short(analyze(tmp_path)) == ("gpu_stall", (0,), "high")


def test_a_group_of_two_hides_no_device_that_lags_by_several_calls(tmp_path: Path) -> None:
    for rank in range(2):
        _rank(rank, 20 if rank else 17, 1 if rank else 4, size=2).write(tmp_path)
    assert short(analyze(tmp_path)) == ("gpu_stall", (0,), "high")


def test_a_lag_behind_calls_that_no_peer_kept_is_never_certain(tmp_path: Path) -> None:
    """The call may be another one than theirs: nothing is left to compare it with."""
    for rank in range(4):
        recorder = _rank(rank, 20 if rank else 17, 6 if rank else 4)
        recorder.ring = 6
        recorder.write(tmp_path)
    assert short(analyze(tmp_path)) == ("gpu_stall", (0,), "medium")


def test_a_lag_beside_a_death_is_a_guess(tmp_path: Path) -> None:
    """The peers of a rank that died abort their communicators, which finishes calls of some and not of others."""
    for rank in range(4):
        _rank(rank, 20 if rank else 17, 1 if rank else 4).write(tmp_path)
    lines = ["[rank3]: Traceback (most recent call last):", '[rank3]:   File "train.py", line 9, in step']
    (tmp_path / "rank_3.log").write_text("\n".join([*lines, "[rank3]: ValueError: bad sample", ""]))
    cause, _, confidence = short(analyze(tmp_path))
    assert cause != "gpu_stall" or confidence == "low"


def test_a_line_behind_a_dump_does_not_tell_whether_a_device_began(tmp_path: Path) -> None:
    """Rank 2's dump is older than the call that all others' devices are in; its own log tells that it enqueued it."""
    for rank in range(4):
        recorder = Recorder(rank, world(4)).call("all_reduce", times=20)
        (recorder if rank == 2 else recorder.call("all_reduce", state="started")).write(tmp_path)
    (tmp_path / "rank_2.log").write_text(timeout(2, group=DEFAULT, seq=21, n=8) + "\n")
    cause, ranks, _ = short(analyze(tmp_path))
    assert cause == "network_stall" and ranks == ()


def test_a_lag_of_a_rank_that_had_nothing_overdue_is_a_guess(tmp_path: Path) -> None:
    """Its own log tells that it waited for nothing when the others timed out: the dump is older than that."""
    for rank in range(4):
        _rank(rank, 20 if rank else 17, 1 if rank else 4).write(tmp_path)
    (tmp_path / "rank_0.log").write_text(observed(0) + "\n")
    (tmp_path / "rank_1.log").write_text(timeout(1, group=DEFAULT, seq=21, n=8) + "\n")
    assert short(analyze(tmp_path)) == ("gpu_stall", (0,), "low")


def test_several_that_are_idle_by_dumps_alone_are_certain_only_where_somebody_timed_out(
    tmp_path: Path,
) -> None:
    """Ten ranks wait for two: no line tells of a timeout, and then one does."""
    for rank in range(12):
        _rank(rank, 20, 0 if rank in (3, 7) else 1, size=12).write(tmp_path)
    assert short(analyze(tmp_path)) == ("stuck_rank", (3, 7), "medium")
    (tmp_path / "rank_1.log").write_text(timeout(1, group=DEFAULT, seq=21, n=8) + "\n")
    assert short(analyze(tmp_path)) == ("stuck_rank", (3, 7), "high")


@pytest.mark.slow
@pytest.mark.parametrize("seed", [53000, 53002])
def test_what_a_rank_did_behind_its_own_dump_is_no_half_that_it_left_out(seed: int, tmp_path: Path) -> None:
    """Rank 11's dump is seconds older than its peers': fewer sends, and no half of the pair that waits."""
    left = Remains(simulate("lost_half", seed))
    left.write(tmp_path, collect(left, "mixed losses"))
    assert blame(analyze(tmp_path)) == ("hang", "p2p_mismatch", tuple(left.job.truth.culprits))
