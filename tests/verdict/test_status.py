"""Whether a job hangs at all: dumps of one that moves, made seconds apart, accuse nobody."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import SCRIPT, TORCH, Recorder, job, world, write_all
from tests.small_jobs import due, loop
from tests.text_lines import timeout, told
from tests.verdicts import blame, culprits, judged, level

SIZE = 8


GROUPS = {"0": ("default_pg", range(SIZE)), **{str(n): ("tp", (2 * n - 2, 2 * n - 1)) for n in range(1, 5)}}


def pairs_of_ranks(waiting: tuple[int, ...]) -> list[Recorder]:
    """Return ranks that meet in pairs, of which the given ones wait for their partners."""
    recorders = job(SIZE, groups=GROUPS)
    for recorder in recorders:
        own = str(recorder.rank // 2 + 1)
        for _ in range(10):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        if recorder.rank in waiting:
            recorder.call("all_reduce", own, line=41, state="started")
    return recorders


def test_where_most_ranks_are_in_no_call_and_no_line_tells_of_trouble_nobody_is_named(tmp_path: Path) -> None:
    assert blame(judged(tmp_path, pairs_of_ranks((1, 4)))) == ("inconclusive", "unknown", ())


def test_a_timeout_tells_that_they_wait_for_more_than_a_moment(tmp_path: Path) -> None:
    report = judged(
        tmp_path,
        pairs_of_ranks((1, 4)),
        rank1=[timeout(1, group="PG ID 1 PG GUID 1(tp) ", seq=11)],
        rank4=[timeout(4, group="PG ID 3 PG GUID 3(tp) ", seq=11)],
    )
    assert blame(report)[::2] == ("hang", (0, 5))


def test_one_who_is_idle_while_all_others_wait_is_named(tmp_path: Path) -> None:
    recorders = loop(2)
    due(recorders[0])
    assert blame(judged(tmp_path, recorders))[::2] == ("hang", (1,))


@pytest.mark.parametrize(("name", "status"), [("new_group", "inconclusive"), ("is_initialized", "no_hang")])
def test_who_stands_in_the_making_of_a_group_waits_for_others_in_no_call(
    tmp_path: Path, name: str, status: str
) -> None:
    for rank in range(3):
        lines = [
            f'  File "{TORCH}/distributed/distributed_c10d.py", line 5863 in {name}',
            f'  File "{SCRIPT}", line 12 in main',
        ]
        lines.insert(0, "Current thread 0x00007f4b7d1296c0 (most recent call first):")
        (tmp_path / f"stack_rank_{rank}.txt").write_text("\n".join(lines))
    assert judged(tmp_path, loop(3)).status == status


def test_of_two_that_were_seen_of_a_group_of_unknown_size_one_is_always_ahead(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", range(4)), "1": ("", range(4))}  # of several groups gloo records no members
    recorders = [Recorder(rank, groups, "gloo") for rank in (0, 1)]
    for recorder in recorders:
        recorder.call("broadcast", times=3).call("all_reduce", "1", times=20)
    recorders[0].call("all_reduce", "1", state="scheduled")
    assert blame(judged(tmp_path, recorders)) == ("inconclusive", "unknown", ())


@pytest.mark.parametrize(
    ("made", "answer"),
    [
        ((12, 12, 13, 12), ("inconclusive", ())),
        ((11, 12, 13, 10), ("inconclusive", ())),
        ((13, 12, 13, 10), ("hang", (1,))),
    ],
)
def test_one_who_is_idle_beside_dumps_of_other_moments_may_have_come_later(
    tmp_path: Path, made: tuple[int, ...], answer: tuple[str, tuple[int, ...]]
) -> None:
    recorders = job(4)
    for recorder, number in zip(recorders, made, strict=True):
        recorder.call("all_reduce", line=43, times=min(number, 12))
        if number > 12:
            recorder.call("all_reduce", line=43, state="started")
    assert blame(judged(tmp_path, recorders))[::2] == answer


def test_devices_here_and_there_that_lag_by_one_call_are_those_of_dumps_made_moments_apart(
    tmp_path: Path,
) -> None:
    groups = {"0": ("default_pg", range(SIZE)), "1": ("shard", range(4)), "2": ("shard", range(4, 8))}
    recorders = job(SIZE, groups=groups)
    for recorder in recorders:
        own = "1" if recorder.rank < 4 else "2"
        for _ in range(10):
            recorder.call("all_gather", own, line=41).call("all_reduce", line=43)
        recorder.call(
            "all_gather", own, line=41, state="started" if recorder.rank in (1, 2, 5, 6) else "completed"
        )
        recorder.call("all_reduce", line=43, state="scheduled")
    assert blame(judged(tmp_path / "alone", recorders)) == ("inconclusive", "unknown", ())
    waits = [timeout(0, group="PG ID 0 PG GUID 0(default_pg) ", seq=11)]
    assert blame(judged(tmp_path / "told", recorders, rank0=waits))[0] == "hang"


@pytest.mark.parametrize(("alone", "answer"), [(True, ("hang", (2,))), (False, ("inconclusive", ()))])
def test_one_who_is_idle_while_most_wait_for_somebody_else_is_a_moment_of_a_moving_job(
    tmp_path: Path, alone: bool, answer: tuple[str, tuple[int, ...]]
) -> None:
    groups = {"0": ("default_pg", range(16)), **{str(n): ("tp", (2 * n - 2, 2 * n - 1)) for n in range(1, 9)}}
    recorders = job(16, groups=groups)
    for recorder in recorders:
        own = str(recorder.rank // 2 + 1)
        for _ in range(10):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        if recorder.rank != 2 and (alone or recorder.rank == 3):
            recorder.call("all_reduce", own, line=41, state="completed" if recorder.rank > 3 else "started")
            recorder.call("all_reduce", line=43, state="scheduled")
        elif recorder.rank != 2:
            recorder.call("all_reduce", own, line=41, state="started")
    assert blame(judged(tmp_path, recorders))[::2] == answer


def _dumped(folder: Path, seconds: float, op: str | None = None) -> Report:
    """Return the report on four ranks of which rank 3 is one call behind, or in another one, by dumps that were written so long after."""
    recorders = loop(4)
    for recorder in recorders:
        if recorder.rank < 3:
            due(recorder)
        elif op is not None:
            recorder.call(op, line=77, state="started")
    write_all(recorders, folder)
    last = max(recorder.time_ns for recorder in recorders) / 1e9
    for path in folder.iterdir():
        os.utime(path, (last + seconds,) * 2)
    return analyze(folder)


def test_dumps_that_were_written_within_a_moment_of_the_last_call_show_no_standstill(tmp_path: Path) -> None:
    report = _dumped(tmp_path, 0.2)
    assert (report.status, report.verdict and report.verdict.culprit_ranks) == ("inconclusive", ())
    assert "within a second of the last collective" in " ".join(report.to_text().split())


@pytest.mark.parametrize("seconds", [5.0, -400.0])
def test_later_ones_and_times_that_cannot_be_speak_for_themselves(tmp_path: Path, seconds: float) -> None:
    assert blame(_dumped(tmp_path, seconds)) == ("hang", "stuck_rank", (3,))


@pytest.mark.parametrize(
    ("rounds", "answer"), [((9, 12), "inconclusive"), ((9, 12, 12), "hang"), ((12, 12), "hang")]
)
def test_two_rounds_of_dumps_between_which_all_made_calls_show_no_standstill(
    tmp_path: Path, rounds: tuple[int, ...], answer: str
) -> None:
    for number, steps in enumerate(rounds):
        recorders = loop(4, steps)
        for recorder in recorders[:3]:
            due(recorder)
        write_all(recorders, tmp_path / f"round{number}")
    report = analyze(tmp_path)
    assert report.status == answer
    assert blame(judged(tmp_path, rank0=[timeout(0, seq=25)]))[::2] == ("hang", (3,))


def test_calls_that_do_not_fit_wait_for_ever_however_young_they_are(tmp_path: Path) -> None:
    assert culprits(_dumped(tmp_path, 0.2, "broadcast")) == (3,)


def test_a_message_of_another_size_is_a_stop_of_nobody_that_is_known(tmp_path: Path) -> None:
    warning = "node1:7:9 [0] transport/net_ib.cc:1038 NCCL WARN NET/IB : req 0/1 tag 0 peer 10.0.0.6<583> collective mismatch error, local size 4960 remote size 655"
    report = told(tmp_path, [warning])
    assert blame(report) == ("hang", "collective_mismatch", ()) and level(report) == "low"


def test_who_is_blocked_in_another_call_by_its_stack_is_not_on_its_way_to_the_one_that_waits(
    tmp_path: Path,
) -> None:
    """Under DETAIL a call is held before it is recorded: only its stack tells that a rank is in one."""
    recorders = job(3)
    for recorder in recorders:
        for _ in range(6):
            recorder.call("all_reduce", line=25)
    recorders[0].call("all_gather", line=16, state="scheduled")
    write_all(recorders, tmp_path)
    for rank in range(3):
        line, op = (16, "all_gather") if rank == 0 else (24, "all_gather_into_tensor")
        where = f'  File "{TORCH}/distributed/distributed_c10d.py", line 4387 in {op}'
        frames = [where, f'  File "{SCRIPT}", line {line} in train', f'  File "{SCRIPT}", line 28 in main']
        head = "Current thread 0x00007f4b7d1296c0 (most recent call first):"
        (tmp_path / f"stack_rank_{rank}.txt").write_text("\n".join([head, *frames]) + "\n")
    report = analyze(tmp_path)
    assert report.status == "hang" and report.verdict is not None
    assert report.verdict.culprit_ranks == (0,)


def test_nearly_half_of_a_job_is_not_named_for_a_call_that_it_only_seems_to_have_made_apart(
    tmp_path: Path,
) -> None:
    """Rank 5 left out its node's call: its seven neighbours wait for it there, and all others for them."""
    groups = {"0": ("default_pg", range(16)), "1": ("node", range(8)), "2": ("node", range(8, 16))}
    for rank in range(16):
        own = {name: group for name, group in groups.items() if rank in group[1]}
        recorder = Recorder(rank, own)
        recorder.call("all_reduce", "0", line=10)
        if rank != 5:
            state = "started" if rank < 8 else "completed"
            recorder.call("all_gather", "1" if rank < 8 else "2", line=31, state=state)
        if rank == 5 or rank > 7:
            recorder.call("barrier", "0", line=40, state="started")
        write_all([recorder], tmp_path)
    assert len(blame(analyze(tmp_path))[2]) <= 1


def test_who_is_late_in_every_round_of_dumps_is_slow_and_not_stuck(tmp_path: Path) -> None:
    for name, steps in (("first", 6), ("second", 9)):
        for rank in range(4):
            recorder = Recorder(rank, world(4))
            for step in range(steps):
                recorder.later(45 if rank == 2 or step else 1).call("all_reduce")
            if rank != 2:
                recorder.later(1).call("all_reduce", state="started")
            recorder.write(tmp_path / name)
    report = analyze(tmp_path)
    assert blame(report) == ("no_hang", "slow_rank", (2,))


@pytest.mark.parametrize(("last", "status"), [(12, "no_hang"), (4, "hang")])
def test_two_lines_of_steps_after_the_dumps_show_a_job_that_moved_on(
    tmp_path: Path, last: int, status: str
) -> None:
    """One rank is busy in its dump; the logs count on every four seconds."""
    recorders = job(3, backend="gloo")
    for recorder in recorders:
        recorder.call("all_reduce", line=41, times=5)
        if recorder.rank:
            recorder.call("all_reduce", line=41, state="scheduled")
    write_all(recorders, tmp_path)
    newest = datetime.fromtimestamp(recorders[1].time_ns / 1e9, UTC)
    for rank in range(3):
        lines = [
            f"{newest + timedelta(seconds=second):%Y-%m-%d %H:%M:%S},000 step {second} loss 0.4"
            for second in range(-8, last + 1, 4)
        ]
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    assert analyze(tmp_path).status == status
