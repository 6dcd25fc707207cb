"""The store based barrier: who timed out in it, who waits in it when the text ends, and who passed it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

import hangscope
from hangscope.ingest.torch_logs.store import StoreBarrier
from hangscope.ingest.workers.reading import read_log

KEY = "store_based_barrier_key:1"
OLD = "I0114 05:02:11.417845 1398 distributed_c10d.py:337] Waiting in store based barrier to initialize process group for rank: {rank}, key: {key} (world_size={of}, worker_count={n}, timeout=0:30:00)"
NEW = "DEBUG:torch.distributed.distributed_c10d:Waiting in store based barrier to initialize process group for 10.0 secondsrank: {rank}, key: {key} (world_size={of}, num_workers_joined={n}, timeout=0:30:00 error=wait timeout)"
DONE = "Rank {rank}: Completed store-based barrier for key:{key} with {of} nodes."
TIMED_OUT = "RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key: {key} (world_size={of}, worker_count={n}, timeout=0:30:00)"


def line(form: str, rank: int, n: int = 3, of: int = 4, key: str = KEY) -> str:
    return form.format(rank=rank, n=n, of=of, key=key)


def barriers(*lines: str) -> list[StoreBarrier]:
    found = read_log(io.BytesIO("\n".join(lines).encode()), "job.log").events
    return [event for event in found if isinstance(event, StoreBarrier)]


@pytest.mark.parametrize("form", [OLD, NEW])
def test_who_waits_when_the_text_ends(form: str) -> None:
    found = barriers(line(form, 2, 1), line(form, 2, 3))
    assert [(e.group_rank, e.joined, e.world_size, e.waiting) for e in found] == [(2, 3, 4, True)]


def test_a_barrier_that_was_passed_says_nothing() -> None:
    assert barriers(line(OLD, 2), line(DONE, 2)) == []
    other = barriers(line(OLD, 2), line(OLD, 2, key="store_based_barrier_key:2"), line(DONE, 2))
    assert len(other) == 1


@pytest.mark.parametrize("waited", [True, False])
def test_a_timeout_is_told_once(waited: bool) -> None:
    found = barriers(*([line(OLD, 2)] if waited else []), line(TIMED_OUT, 2))
    assert [(e.group_rank, e.joined, e.waiting) for e in found] == [(2, 3, False)]


def test_who_still_waits_is_a_guess_at_a_beginning(tmp_path: Path) -> None:
    (tmp_path / "paste.txt").write_text(line(OLD, 2, 7, 8) + "\n" + line(OLD, 6, 7, 8) + "\n")
    report = hangscope.analyze(str(tmp_path), jobs=1)
    assert report.verdict is not None
    assert (report.status, report.verdict.cause, report.verdict.confidence) == ("hang", "init_hang", "low")
    assert report.verdict.culprit_ranks == ()
    assert "7 of 8 ranks had joined" in report.verdict.summary


SERVER = "[W1120 15:13:2{}.102 TCPStore.cpp:158] [c10d] waiting for workers. {}/4 workers joined."


@pytest.mark.parametrize("end", [[], ["^C"], ["[rank0]: Traceback (most recent call last):"]])
def test_the_store_s_server_that_waits_when_the_text_ends(end: list[str]) -> None:
    found = barriers(SERVER.format(1, 2), "", SERVER.format(2, 3), *end)
    assert [(e.joined, e.world_size, e.waiting) for e in found] == [(3, 4, True)]


def test_a_server_whose_process_went_on_waits_no_more() -> None:
    assert barriers(SERVER.format(1, 3), "model ready, 7 layers") == []
