"""Ranks that leave the program that they repeated before: found by their own calls of all groups, in their order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all
from tests.verdicts import blame, said

STEPS = 12
RING = {"0": ("default_pg", range(4))}
PIPELINES = {"0": ("default_pg", range(4)), "1": ("pp", (0, 2)), "2": ("pp", (1, 3))}


# -- a ring: send to the next, receive from the one before, then a metric -------------------------------------------


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


# -- two pipelines of two stages, and a metric over all --------------------------------------------------------------


def staged(recorder: Recorder, state: str = "completed") -> None:
    first = recorder.rank < 2
    peer, group = (recorder.rank + 2 if first else recorder.rank - 2), "1" if recorder.rank % 2 == 0 else "2"
    steps = [recorder.send, recorder.recv] if first else [recorder.recv, recorder.send]
    for step in steps:
        step(peer, group, state=state, line=60 + 2 * first)
        state = "scheduled" if state != "completed" else state


def pipelines(last: Callable[[Recorder], None]) -> list[Recorder]:
    recorders = [Recorder(rank, PIPELINES) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            staged(recorder)
            recorder.call("all_reduce", line=41)
        staged(recorder)
        last(recorder)
    return recorders


def test_a_stage_that_skips_a_call_of_all_waits_in_its_next_receive(tmp_path: Path) -> None:
    """The ranks of the other stage run another program: only those of its own show what it left out."""

    def last(recorder: Recorder) -> None:
        if recorder.rank == 2:
            staged(recorder, "started")
        else:
            recorder.call("all_reduce", line=41, state="started")

    write_all(pipelines(last), tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (2,))


def test_a_stage_that_makes_a_call_of_its_own_keeps_its_peer_waiting(tmp_path: Path) -> None:
    def last(recorder: Recorder) -> None:
        if recorder.rank == 0:
            recorder.call("barrier", "1", sizes=[[1]], line=90, function="save", state="started")
            return
        recorder.call("all_reduce", line=41, state="scheduled" if recorder.rank == 2 else "started")

    write_all(pipelines(last), tmp_path)
    report = analyze(tmp_path)
    assert blame(report)[1:] == ("rank_conditional_collective", (0,))


# -- gradient buckets ------------------------------------------------------------------------------------------------

BUCKETS = ([[4096]], [[2048]], [[1024]])


def backward(recorder: Recorder, buckets: int = 3, state: str = "completed") -> None:
    for sizes in BUCKETS[:buckets]:
        recorder.call("all_reduce", sizes=sizes, line=None, state=state)


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_backward_that_ends_before_its_last_bucket(tmp_path: Path, buckets: int) -> None:
    """The pass had begun, so this is no rank that ran out of batches, although the metric ends each round."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            backward(recorder)
            recorder.call("all_reduce", sizes=[[2]], line=41, function="log_metrics")
        if recorder.rank == 1:
            backward(recorder, buckets)
            recorder.call("all_reduce", sizes=[[2]], line=41, function="log_metrics", state="started")
        else:
            backward(recorder, buckets)
            for sizes in BUCKETS[buckets:]:
                recorder.call("all_reduce", sizes=sizes, line=None, state="started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "gradient_sync_mismatch", (1,))
    assert report.verdict is not None and report.verdict.confidence == "high"


def test_a_call_by_hand_that_looks_like_a_bucket_is_no_bucket(tmp_path: Path) -> None:
    """It shifts all that follow, so buckets meet other buckets; but it was made by a line of the script."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            backward(recorder)
        if recorder.rank == 3:
            recorder.call("all_reduce", sizes=BUCKETS[0], line=77, function="log_samples")
        recorder.call(
            "all_reduce", sizes=BUCKETS[0], line=None, state="completed" if recorder.rank != 3 else "started"
        )
        for sizes in (*BUCKETS[1:], *BUCKETS):
            recorder.call(
                "all_reduce", sizes=sizes, line=None, state="scheduled" if recorder.rank == 3 else "started"
            )
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (3,))
    assert report.verdict is not None and report.verdict.location is not None
    assert (report.verdict.location.line, report.verdict.location.function) == (77, "log_samples")


# -- circles ---------------------------------------------------------------------------------------------------------


def test_in_a_circle_the_one_with_the_reverse_order_is_odd(tmp_path: Path) -> None:
    """No history: what most ranks do is the order, whichever of the two is new to each of them."""
    groups = {"0": ("default_pg", range(6)), "1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("tp", (4, 5))}
    recorders = [Recorder(rank, groups) for rank in range(6)]
    for recorder in recorders:
        own = str(1 + recorder.rank // 2)
        order = [("0", 41), (own, 42)] if recorder.rank != 3 else [(own, 42), ("0", 41)]
        for (group, line), state in zip(order, ("started", "scheduled"), strict=True):
            recorder.call("all_reduce", group, line=line, state=state)
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "collective_order_mismatch", (3,))


# -- the end of the loop ---------------------------------------------------------------------------------------------


def epochs(recorder: Recorder, count: int = 2, steps: int = 6) -> None:
    for _ in range(count):
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=steps)
        recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average")


def test_who_says_that_an_epoch_is_over_that_was_over_for_all_did_not_run_out(tmp_path: Path) -> None:
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        epochs(recorder)
        rank, waits = recorder.rank, recorder.rank != 2
        if waits:
            recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started")
        lines = [f"[rank {rank}] epoch 1 step 6/6", f"[rank {rank}] epoch 1 finished"]
        lines += [f"[rank {rank}] epoch 2 step 1/6"] if waits else []
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "stuck_rank", (2,))


def test_the_call_that_all_have_just_made_once_more_is_no_end_of_an_epoch(tmp_path: Path) -> None:
    """A call too many, equal to the one that was due, was taken for it; since then the rank is one call behind."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        epochs(recorder)
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=6)
        if recorder.rank == 1:
            recorder.call("all_reduce", sizes=[[3]], line=77, function="log_samples")
            recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average", state="started")
        else:
            recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average")
            recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,))
