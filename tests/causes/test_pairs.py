"""Sends and receives that do not pair: found by each rank's own program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, world, write_all
from tests.text_lines import DEFAULT, short, timeout, told
from tests.verdicts import TIMED_OUT, blame, judged, said

STEPS = 12
RING = {"0": ("default_pg", range(4))}


# a ring: send to the next, receive from the one before, then a metric


def around(recorder: Recorder, state: str = "completed", *, source: int | None = None) -> None:
    rank, later = recorder.rank, "scheduled" if state != "completed" else state
    recorder.send((rank + 1) % 4, state=state)
    recorder.recv((rank - 1) % 4 if source is None else source, state=later)
    recorder.call("all_reduce", line=41, state=later)


def ring(last: Callable[[Recorder], None]) -> list[Recorder]:
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            around(recorder)
        last(recorder)
    return recorders


def test_a_receive_from_the_wrong_peer_is_the_fault_of_who_posted_it(tmp_path: Path) -> None:
    write_all(ring(lambda r: around(r, "started", source=3 if r.rank == 1 else None)), tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "p2p_mismatch", (1,))
    assert "its own schedule has recv 0 -> 1, rank 1 issued recv 3 -> 1" in said(report)


def test_a_send_that_was_left_out_is_the_fault_of_whose_program_calls_for_it(tmp_path: Path) -> None:
    def last(recorder: Recorder) -> None:
        rank, waits = recorder.rank, recorder.rank == 3
        if rank != 2:
            recorder.send((rank + 1) % 4)
        recorder.recv((rank - 1) % 4, state="started" if waits else "completed")
        recorder.call("all_reduce", line=41, state="scheduled" if waits else "started")

    write_all(ring(last), tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "p2p_mismatch", (2,))
    assert "its own schedule has send 2 -> 3" in said(report)


def test_what_all_do_for_the_first_time_is_nobodys_fault(tmp_path: Path) -> None:
    """All turn the ring round at once, and one is late: it is not to blame for the turn."""

    def turned(recorder: Recorder) -> None:
        rank = recorder.rank
        if rank != 3:
            recorder.send((rank - 1) % 4, state="started", line=62).recv(
                (rank + 1) % 4, state="scheduled", line=63
            )

    write_all(ring(turned), tmp_path)
    report = analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (3,)


def test_a_half_of_an_open_batch_that_its_peer_finished_has_met_it(tmp_path: Path) -> None:
    """The rings lost their beginnings. Rank 2 left its batch out: its neighbours' stay open, with a half each that is over."""
    recorders = [Recorder(rank, RING, ring=20) for rank in range(4)]
    for recorder in recorders:
        around = [("send", (recorder.rank + 1) % 4), ("recv", (recorder.rank - 1) % 4)]
        for _ in range(STEPS):
            recorder.batch(around)
        if recorder.rank != 2:
            recorder.batch(around, state="started" if recorder.rank in (1, 3) else "completed")
        recorder.call("all_reduce", line=41, state="scheduled")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "p2p_mismatch", (2,))


def test_a_send_of_a_batch_to_the_wrong_peer_shifts_the_pair_that_lacks_it(tmp_path: Path) -> None:
    """The rings lost their beginnings. Rank 2 sent once to rank 1 instead of 3: its later sends to 3 meet earlier receives."""
    recorders = [Recorder(rank, RING, ring=24) for rank in range(4)]
    for recorder in recorders:
        rank = recorder.rank
        around = [("send", (rank + 1) % 4), ("recv", (rank - 1) % 4)]
        for _ in range(STEPS):
            recorder.batch(around)
        recorder.batch([("send", 1), ("recv", 1)] if rank == 2 else around, state="started")
        recorder.batch(around, state="scheduled")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "p2p_mismatch", (2,))


def pipelines(replicas: int) -> list[Recorder]:
    """Return replicas of two stages, each of two ranks, that exchanged as many batches."""
    size = 4 * replicas
    groups = {"0": ("default_pg", range(size))}
    for first in range(0, size, 4):
        for rank in (first, first + 1):
            groups[f"pp{rank}"] = ("pp", (rank, rank + 2))  # type: ignore[assignment]
    recorders = [Recorder(rank, groups) for rank in range(size)]
    for recorder in recorders:
        for _ in range(2 * 5):
            exchange(recorder)
    return recorders


def exchange(recorder: Recorder, state: str = "completed", size: int = 64) -> None:
    rank, is_last = recorder.rank, recorder.rank % 4 > 1
    group = f"pp{rank - 2 if is_last else rank}"
    if is_last:
        recorder.recv(rank - 2, group, state=state)
        recorder.send(rank - 2, group, state=state if state == "completed" else "scheduled", size=size)
    else:
        recorder.send(rank + 2, group, state=state, size=size)
        recorder.recv(rank + 2, group, state=state if state == "completed" else "scheduled")


def test_one_more_exchange_than_in_the_other_replicas_is_the_fault_of_who_began_it(tmp_path: Path) -> None:
    recorders = pipelines(3)
    for recorder in recorders:
        if recorder.rank in (6, 7):
            exchange(recorder, "started")
        recorder.call("all_reduce", line=41, state="scheduled" if recorder.rank in (6, 7) else "started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "p2p_mismatch", (6, 7))
    assert "issued 2 sends or receives more than their counterparts" in said(report)


def test_ranks_that_send_another_size_in_groups_side_by_side_are_one_fault(tmp_path: Path) -> None:
    recorders = pipelines(3)
    for recorder in recorders:
        replica = recorder.rank // 4
        exchange(
            recorder, "started" if replica == 1 else "completed", size=48 if recorder.rank in (4, 5) else 64
        )
        recorder.call("all_reduce", line=41, state="scheduled" if replica == 1 else "started")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "p2p_mismatch", (4, 5))


def test_halves_left_out_in_groups_side_by_side_are_one_fault(tmp_path: Path) -> None:
    """Two chains of three stages; the middle of both sends its gradient back without the receive of the next batch."""
    groups = {"0": ("default_pg", range(6)), "1": ("pp", (0, 2, 4)), "2": ("pp", (1, 3, 5))}
    recorders = [Recorder(rank, {n: g for n, g in groups.items() if rank in g[1]}) for rank in range(6)]
    for recorder in recorders:
        stage, own = recorder.rank // 2, str(1 + recorder.rank % 2)
        before, behind = recorder.rank - 2, recorder.rank + 2
        halves = {"left": [("send", before), ("recv", before)], "right": [("send", behind), ("recv", behind)]}
        for _ in range(STEPS):
            for place in {0: ["right"], 1: ["left", "right"], 2: ["left"]}[stage]:
                recorder.batch(halves[place], own)
        if stage == 1:
            recorder.batch([("send", before)], own, state="scheduled", line=75)
        else:
            recorder.batch(halves["right" if stage == 0 else "left"], own, state="scheduled")
    assert blame(analyze(write_all(recorders, tmp_path))) == ("hang", "p2p_mismatch", (2, 3))


def test_who_has_not_come_to_its_half_is_stuck_whatever_the_clocks_say(tmp_path: Path) -> None:
    """Rank 2 made two calls more after the send to it was enqueued; its own program calls for the receive next."""
    groups = {"0": ("default_pg", range(4)), "1": ("tp", (0, 1)), "2": ("tp", (2, 3))}
    recorders = [Recorder(rank, groups) for rank in range(4)]
    for recorder in recorders:
        first, rank = recorder.rank < 2, recorder.rank
        for step in range(STEPS):
            last = step == STEPS - 1
            recorder.call("all_reduce", "1" if first else "2", line=50, times=2)
            if first:
                recorder.send(rank + 2, state="started" if last and rank == 0 else "completed")
            elif not (last and rank == 2):
                recorder.recv(rank - 2)
        if rank in (1, 3):
            recorder.call("all_reduce", "1" if first else "2", line=50, state="started")
    recorders[2].entries[-1]["time_created_ns"] += 20_000_000
    recorders[2].entries[-2]["time_created_ns"] += 20_000_000
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "stuck_rank", (2,))


def _exchange(folder: Path, rounds: int, *, batched: bool = False) -> tuple[str, str | None, tuple[int, ...]]:
    """Return who is blamed where rank 1 receives first, and in the last round sends first as rank 0 does, or posts both at once."""
    recorders = [Recorder(rank, world(2)) for rank in range(2)]
    for recorder in recorders:
        peer = 1 - recorder.rank
        for _ in range(rounds):
            (recorder.recv(peer).send(peer) if recorder.rank else recorder.send(peer).recv(peer))
        if batched:
            recorder.batch([("send", peer), ("recv", peer)], state="started")
        else:
            recorder.send(peer, state="started").recv(peer, state="scheduled")
    write_all(recorders, folder)
    return blame(analyze(folder))


def test_two_that_send_to_each_other_first_wait_in_a_circle(tmp_path: Path) -> None:
    """Rank 1's own pattern may tell that it turned its order round; without any they are both in it."""
    for rounds, answers in ((4, ((1,), (0, 1))), (0, ((), (0, 1)))):
        status, cause, named = _exchange(tmp_path / str(rounds), rounds)
        assert status == "hang" and cause in ("p2p_mismatch", "collective_order_mismatch")
        assert named in answers


def test_two_that_post_both_at_once_do_not_wait_for_each_other(tmp_path: Path) -> None:
    assert _exchange(tmp_path, 4, batched=True)[1] not in ("p2p_mismatch", "collective_order_mismatch")


_STACK = """Process {pid}: python -u pretrain.py
Python v3.11.7 (/usr/local/bin/python3.11)

Thread {pid} (idle): "MainThread"
{frames}
    train_step (pretrain.py:61)
    <module> (pretrain.py:92)
"""
_IN_P2P = "    _wait_batch_p2p (torch/distributed/pipelining/schedules.py:683)\n    step (torch/distributed/pipelining/schedules.py:785)"
_IN_CALL = "    all_reduce (torch/distributed/distributed_c10d.py:3252)"


def test_a_rank_that_waits_in_an_unrecorded_receive_is_not_stuck(tmp_path: Path) -> None:
    recorders = [Recorder(rank, RING).call("all_reduce", times=9) for rank in range(4)]
    for recorder in recorders:
        if recorder.rank != 1:
            recorder.call("all_reduce", state="scheduled")
    write_all(recorders, tmp_path)
    for rank in range(4):
        frames = _IN_P2P if rank == 1 else _IN_CALL
        (tmp_path / f"stack_rank{rank}.txt").write_text(_STACK.format(pid=100 + rank, frames=frames))
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "p2p_mismatch", (1,))
    assert "no other rank is in one that could match it" in said(report)


_AT_A_LINE = "    exchange (ring.py:23)"


def test_who_has_left_an_exchange_of_its_block_left_something_out(tmp_path: Path) -> None:
    """Two rings of three, of which gloo records nothing; the groups across them show who is in which."""
    groups = {"0": ("default_pg", range(6)), **{str(n + 1): ("dp", (n, n + 3)) for n in range(3)}}
    recorders = [Recorder(rank, groups, backend="gloo") for rank in range(6)]
    for recorder in recorders:
        own = str(recorder.rank % 3 + 1)
        for _ in range(8):
            recorder.call("all_reduce", own, line=93).call("all_reduce", line=98)
        if recorder.rank in (0, 3):
            recorder.call("all_reduce", own, line=93).call("all_reduce", line=98, state="scheduled")
        elif recorder.rank in (1, 2):
            recorder.call("all_reduce", own, line=93, state="scheduled")
    write_all(recorders, tmp_path)
    for rank in range(6):
        frames = _AT_A_LINE if rank in (4, 5) else _IN_CALL
        (tmp_path / f"stack_rank{rank}.txt").write_text(_STACK.format(pid=100 + rank, frames=frames))
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "p2p_mismatch", (3,))
    assert report.verdict is not None and report.verdict.suspect_ranks == (3, 4, 5)


def _timed_out(rank: int, line: int) -> list[str]:
    """Return a traceback that ends in the wait for an asynchronous call."""
    at = [("ring.py", 37, "<module>"), ("ring.py", 27, "main"), ("exchange.py", line, "rotate")]
    frames = [
        f'[rank{rank}]:   File "/workspace/{file}", line {number}, in {name}' for file, number, name in at
    ]
    return [f"[rank{rank}]: Traceback (most recent call last):", *frames, f"[rank{rank}]: {TIMED_OUT}"]


@pytest.mark.parametrize("odd", [True, False])
def test_where_all_recorded_calls_are_over_and_all_wait_an_unrecorded_one_does_not_pair(
    tmp_path: Path, odd: bool
) -> None:
    recorders = [Recorder(rank, RING, backend="gloo").call("all_reduce", times=9) for rank in range(4)]
    bases = [160 if odd and rank == 3 else 144 for rank in range(4)]
    logs = {
        f"rank{rank}": [f"packer reloaded, tag base {bases[rank]}", *_timed_out(rank, 10 + rank % 2)]
        for rank in range(4)
    }
    report = judged(tmp_path, recorders, **logs)
    assert blame(report) == ("hang", "p2p_mismatch", (3,) if odd else ())
    assert not odd or "rank 3 printed 160 where the others printed 144" in said(report)


def test_two_ranks_that_both_receive_first_wait_for_each_other(tmp_path: Path) -> None:
    """So they do only where nobody else may send: the job has these two ranks."""
    lines = [timeout(rank, seq=2, op="RECV", group=DEFAULT) for rank in (0, 1)]
    run = "torchrun --nproc-per-node 2 pipe.py"
    assert short(told(tmp_path / "two", [run, *lines]))[:2] == ("p2p_mismatch", ())
    assert short(told(tmp_path / "more", lines))[0] != "p2p_mismatch"
