"""Calls that some ranks make and others do not, inside the loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.conftest import analyze
from tests.dump_writer import EPOCH_NS, Recorder, job, world, write_all
from tests.small_jobs import ODD_ONES, due, frozen, loop
from tests.text_lines import judged, short, timeout, told
from tests.verdicts import blame, level, said

STEPS = 12
PIPELINES = {"0": ("default_pg", range(4)), "1": ("pp", (0, 2)), "2": ("pp", (1, 3))}


# one group: a call more, or one less


def save(recorder: Recorder) -> Recorder:
    return recorder.call("barrier", sizes=[[1]], line=90, function="save", state="started")


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_the_one_that_makes_a_call_of_its_own_is_named(job_of: tuple[int, int]) -> None:
    size, odd = job_of
    report = frozen(loop(size), (odd,), lambda r, is_odd: save(r) if is_odd else due(r))
    assert blame(report) == ("hang", "rank_conditional_collective", (odd,))
    assert report.verdict is not None and report.verdict.location is not None
    assert (report.verdict.location.line, report.verdict.location.rank) == (90, odd)
    # What rank 0 does alone is its own; any other may be in a handler, or behind a loop that ended early.
    assert level(report) == ("medium" if odd else "high")


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_the_one_that_leaves_a_call_out_is_named(job_of: tuple[int, int]) -> None:
    size, odd = job_of

    def last(recorder: Recorder, is_odd: bool) -> Recorder:
        if is_odd:
            return recorder.call("all_gather", outputs=[[8]] * size, line=43, state="started")
        return due(recorder)

    report = frozen(loop(size), (odd,), last)
    assert blame(report) == ("hang", "rank_conditional_collective", (odd,))
    assert f"Rank {odd} skipped all_reduce([1024] Float) and continued" in said(report)


@pytest.mark.parametrize("size", [2, 4])
def test_half_in_one_call_and_half_in_another_for_the_first_time_names_nobody(size: int) -> None:
    report = frozen(job(size), tuple(range(size // 2)), lambda r, is_odd: save(r) if is_odd else due(r))
    assert blame(report) == ("hang", "rank_conditional_collective", ())
    assert level(report) != "high"


# two pipelines of two stages, and a metric over all


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


def test_a_call_more_than_all_that_was_kept_tells_no_kind_of_call() -> None:
    """Every call that is left meets the next one; the odd one fell out of the recorders."""

    def last(recorder: Recorder, is_odd: bool) -> None:
        if is_odd:
            recorder.call("broadcast", line=77, state="started")
        for size in (64, 32, 16, 8):
            due(recorder, sizes=[[size]], line=None)
        recorder.ring = 4

    report = frozen(loop(4), (1,), last)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,)) and level(report) != "high"
    assert "issued 1 more collective before seq" in report.to_text()


# two pipeline stages of five replicas, of which one saves while the others begin the next step

STAGES: dict[str, tuple[str, tuple[int, ...]]] = {
    "0": ("default_pg", tuple(range(20))),
    **{f"tp{n}": ("tp", (2 * n, 2 * n + 1)) for n in range(10)},
    **{f"dp{n}": ("dp", tuple(range(10 * (n // 2) + n % 2, 10 * (n // 2) + 10, 2))) for n in range(4)},
    **{f"mp{n}": ("mp", (2 * n, 2 * n + 1, 2 * n + 10, 2 * n + 11)) for n in range(5)},
}


def test_who_made_a_call_that_is_new_to_everybody_is_not_told_from_rings_that_are_too_short(
    tmp_path: Path,
) -> None:
    """The last stage calls so much that its rings hold the reduction of its gradients once only."""
    recorders = [Recorder(rank, STAGES, ring=24) for rank in range(20)]
    for recorder in recorders:
        rank, last_stage = recorder.rank, recorder.rank >= 10
        replica = rank % 10 // 2
        tensor, data, model = f"tp{rank // 2}", f"dp{2 * last_stage + rank % 2}", f"mp{replica}"
        for step in range(4):
            recorder.time_ns = EPOCH_NS + step * 10**9
            if not last_stage:
                recorder.call("broadcast", tensor, line=30)
            for _ in range(10 if last_stage else 3):
                recorder.call("all_reduce", tensor, sizes=[[16]], line=31)
                if last_stage:
                    recorder.call("all_gather", tensor, outputs=[[8]] * 2, line=33)
            going = "started" if step == 3 else "completed"
            recorder.time_ns = EPOCH_NS + step * 10**9 + 5 * 10**8
            recorder.call("reduce_scatter", data, line=34, state=going)
            recorder.call("all_reduce", model, sizes=[[1]], line=35, state=going)
            if step == 2 and replica == 4:
                recorder.call("barrier", sizes=[[1]], line=90, function="save", state="started")
                break
    write_all(recorders, tmp_path)
    status, cause, culprits = blame(analyze(tmp_path))
    assert (status, cause) == ("hang", "rank_conditional_collective") and set(culprits) <= {8, 9, 18, 19}


def test_other_sizes_by_the_watchdogs_lines_alone_are_a_guess(tmp_path: Path) -> None:
    lines = [f"[rank{rank}]: step 8 loss 2.3{rank}" for rank in range(4)]
    lines += [timeout(rank, seq=61, n=256 if rank == 3 else 65536) for rank in range(4)]
    assert short(told(tmp_path, lines)) == ("shape_mismatch", (3,), "medium")


def test_ranks_that_all_wait_for_their_own_data_loaders_wait_for_no_other_rank(tmp_path: Path) -> None:
    spy = [
        'Thread 310 (idle): "MainThread"',
        "    _try_get_data (torch/utils/data/dataloader.py:1011)",
        "    __next__ (torch/utils/data/dataloader.py:530)",
        "    train (train.py:142)",
    ]
    verdict = judged(told(tmp_path, {f"stack_rank_{rank}.txt": spy for rank in (0, 1)}))
    assert (verdict.cause, verdict.culprit_ranks, verdict.suspect_ranks) == ("stuck_rank", (), (0, 1))


@pytest.mark.parametrize(
    ("dumped", "answer"),
    [
        (range(3), ("stuck_rank", (2,), "low")),
        ((), ("rank_conditional_collective", (2,), "low")),
    ],
)
def test_who_alone_printed_something_and_made_the_calls_of_its_peers_skipped_none(
    tmp_path: Path, dumped: Iterable[int], answer: tuple[str, tuple[int, ...], str]
) -> None:
    """A line of its own may tell of slow work or of a skipped call: the latter the recorded calls would show."""
    for rank in dumped:
        Recorder(rank, world(4)).call("all_reduce", times=9).write(tmp_path)
    logs: dict[str, str | list[str]] = {
        f"rank_{rank}.log": [
            *(f"iter {n} loss 1.{rank}" for n in range(30, 33)),
            *(["batch too large, dropped"] if rank == 2 else []),
            *(f"iter {n} loss 1.{rank}" for n in (33, 34)),
        ]
        for rank in range(4)
    }
    assert short(told(tmp_path, logs)) == answer


# what a rank waits for on its own host

_SPY = """Process {pid}: python train.py
Thread {pid} (idle): "MainThread"
    wait (threading.py:327)
    get (queue.py:171)
    __next__ (loader.py:48)
    train (train.py:{line})
    <module> (train.py:200)
Thread 9{pid} (idle): "prefetch"
    {inner}
    _read (loader.py:44)
    run (threading.py:982)
"""
_WORKER = """
Process 77: python train.py
Parent Process 72: python train.py
Thread 77 (idle): "MainThread"
    __getitem__ (data.py:30)
    fetch (torch/utils/data/_utils/fetch.py:54)
    _worker_loop (torch/utils/data/_utils/worker.py:374)
    __init__ (torch/utils/data/dataloader.py:1176)
    train (train.py:38)
    <module> (train.py:200)
"""


@pytest.mark.parametrize(
    ("inner", "more", "place"),
    [
        ("reseed (loader.py:18)", "", "the thread prefetch of rank 2 does at loader.py:18 in reseed"),
        ("put (queue.py:140)", _WORKER, "the worker process 77 of rank 2 does at data.py:30 in __getitem__"),
    ],
)
def test_another_thread_or_a_worker_shows_what_a_rank_waits_for(
    tmp_path: Path, inner: str, more: str, place: str
) -> None:
    for recorder in job(4):
        recorder.call("all_reduce", line=41, times=STEPS)
        if recorder.rank != 2:
            recorder.call("all_reduce", line=41, state="started")
        recorder.write(tmp_path)
        at = inner if recorder.rank == 2 else "put (queue.py:140)"
        text = _SPY.format(pid=70 + recorder.rank, line=30 if recorder.rank == 2 else 41, inner=at)
        extra = more if recorder.rank == 2 else ""
        (tmp_path / f"stack_rank_{recorder.rank}.txt").write_text(text + extra)
    report = analyze(tmp_path)
    assert blame(report)[1:] == ("stuck_rank", (2,))
    assert place in said(report)
    assert not report.warnings
