"""Sends and receives that do not pair: found by each rank's own program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all
from tests.verdicts import blame, said

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
    assert "its own program calls for recv 0 -> 1, rank 1 made recv 3 -> 1" in said(report)


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
    assert "its own program calls for send 2 -> 3" in said(report)


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


def test_a_send_on_a_pair_that_was_never_used_is_the_fault_of_who_made_it(tmp_path: Path) -> None:
    """A short pipeline, in which no rank's own pattern tells yet: rank 1 sends one message to rank 3 that rank 2 waits for."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    first, second, third, fourth = recorders
    for _ in range(1):
        first.send(1)
        second.recv(0).send(2)
        third.recv(1).send(3)
        fourth.recv(2)
    first.send(1).call("all_reduce", line=41, state="started")
    second.recv(0).send(3, state="started").call("all_reduce", line=41, state="scheduled")
    third.recv(1, state="started").send(3, state="scheduled").call("all_reduce", line=41, state="scheduled")
    fourth.recv(2, state="started").call("all_reduce", line=41, state="scheduled")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "p2p_mismatch", (1,))
