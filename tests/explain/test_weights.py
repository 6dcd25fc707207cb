"""What text tells competes with what calls show, and each price has a finding that would win without it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from hangscope.explain.finding import Absent, Different, Finding, Source, Stalled, Unseen, price
from tests.dump_writer import Recorder, world
from tests.text_lines import CLOSED, timeout
from tests.verdicts import blame, judged


def test_what_leaves_fewer_readings_is_cheaper() -> None:
    kinds: tuple[Finding, ...] = (Different((1,)), Absent((1,)), Unseen((1,)), Stalled())
    assert all(price(a, Source.CALLS) + 0.1 <= price(b, Source.CALLS) for a, b in pairwise(kinds))
    sources = (Source.OWN_WORDS, Source.REPORT, Source.HINT, Source.SILENCE, Source.OUTPUT)
    assert all(price(Absent((1,)), a) < price(Absent((1,)), b) for a, b in pairwise(sources))


def test_silence_does_not_outweigh_a_call_that_all_joined() -> None:
    assert price(Stalled(), Source.CALLS) < price(Absent((1,)), Source.SILENCE)


def test_a_report_outweighs_that_a_rank_left_no_dump() -> None:
    assert price(Absent((1,)), Source.REPORT) < price(Unseen((2,)), Source.CALLS)


def test_what_a_monitored_barrier_says_is_heard_beside_dumps_of_victims(tmp_path: Path) -> None:
    """Two dumps show their ranks in a call that somebody unknown is missing from; the barrier's report says who."""
    recorders = [Recorder(rank, world(4)).call("all_reduce", times=5) for rank in (0, 1)]
    for recorder in recorders:
        recorder.call("barrier", state="started")
    lines = ["[rank0]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 8000 ms"]
    reached = "RuntimeError: Rank {0} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0."
    logs = {f"rank_{rank}": [f"[rank{rank}]: {reached.format(rank)}"] for rank in (1, 3)}
    status, _, ranks = blame(judged(tmp_path, recorders, rank_0=lines, **logs))
    assert status == "hang" and ranks == (2,)


def test_a_silent_rank_beside_dumps_that_name_another_is_not_named(tmp_path: Path) -> None:
    recorders = [
        Recorder(rank, world(4)).call("all_reduce", times=5 if rank == 3 else 6) for rank in range(4)
    ]
    for recorder in recorders[:3]:
        recorder.reopen(-1)
    logs = {f"rank_{rank}": [f"[rank{rank}]: {CLOSED}"] for rank in (0, 1, 3)}
    assert blame(judged(tmp_path, recorders, **logs))[2] == (3,)


def test_the_only_rank_without_an_error_is_not_absent_from_a_call_that_its_dump_shows_it_in(
    tmp_path: Path,
) -> None:
    """Two ranks of one host were not collected: whom all others wait for stays open."""
    recorders = [Recorder(r, world(8)).call("barrier", times=6).reopen(-1) for r in range(6)]
    logs = {f"rank_{rank}": [timeout(rank, seq=6)] for rank in range(5)}
    logs["rank_5"] = ["[rank5]: step 5"]
    assert 5 not in blame(judged(tmp_path, recorders, **logs))[2]
