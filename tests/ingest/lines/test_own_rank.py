"""The rank that a program puts before its own lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.ingest.job_logs.printed import printed
from hangscope.ingest.job_logs.progress import progress_events
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.lines.rank_words import by_itself
from tests.text_lines import judged, short, timeout, told


@pytest.mark.parametrize(
    "head", ["[rank 3] ", "[Rank 3/16] ", "rank3 ", "rank 3: ", "RANK=3 ", "(rank 3 of 16) ", "[proc 3] ", "[r3] ", "<rank:3> ", "[rang 3] ", "2026-05-07 11:20:12 [rank 3] ", "11:20:12 rank 3 ", "[  12.4s] rank 3: ", "1778152812.25 rank 3 ", "[11:20:12.250] [rank 3] "],
)  # fmt: skip
def test_a_line_tells_whose_it_is(head: str) -> None:
    line = by_itself(strip_prefix(f"{head}step 5 loss 1.25"))
    assert (line.rank, line.text) == (3, "step 5 loss 1.25")


@pytest.mark.parametrize(
    "text",
    ["ranking 3 items", "run3 step 5", "rank3.log written", "r3 step 5", "process 3 step 5", "step 5 of rank 3", "[3] step 5", "rank step 5", "5 rank 3 step 5", "1.25x rank 3 step 5"],
)  # fmt: skip
def test_other_words_tell_of_no_rank(text: str) -> None:
    line = strip_prefix(text)
    assert by_itself(line) == line


def test_a_rank_that_another_prefix_tells_stays() -> None:
    assert by_itself(strip_prefix("[rank2]: rank 0 step 5")).rank == 2


def test_of_each_rank_of_one_log_the_last_step_is_kept() -> None:
    data = b"".join(b"rank%d step %d\n" % (rank, step) for step in range(3) for rank in range(4))
    events = progress_events(KeptText([(1, data)]))
    assert [(e.rank, e.step) for e in events] == [(rank, 2) for rank in range(4)]


def test_of_each_rank_of_one_log_the_last_lines_are_kept() -> None:
    data = b"".join(b"[rank %d] read shard %d\n" % (rank, step) for step in range(3) for rank in range(2))
    told = printed(KeptText([(1, data + b"srun: waiting\nsrun: waiting\n")]), own=False)
    assert [(t.rank, t.templates, t.counts) for t in told] == [(r, ("read shard #",), (3,)) for r in range(2)]


def test_who_printed_a_line_of_its_own_while_the_others_timed_out(tmp_path: Path) -> None:
    lines = [f"[rank {rank}] read shard {n}" for n in range(4) for rank in range(4)]
    lines += [f"[rank {rank}] read shard 4" for rank in (0, 1, 3)] + ["[rank 2] waiting for a lock"]
    verdict = judged(told(tmp_path, [*lines, *(timeout(rank) for rank in (0, 1, 3))]))
    assert verdict.culprit_ranks == (2,) and verdict.confidence != "high"


@pytest.mark.parametrize(
    ("few", "many", "cause"),
    [
        (1, 6_553_600, "rank_conditional_collective"),
        (36_864, 98_304, "shape_mismatch"),
        (1, 12, "shape_mismatch"),
    ],
)
def test_a_few_numbers_are_not_the_tensor_of_the_others(
    tmp_path: Path, few: int, many: int, cause: str
) -> None:
    lines = [timeout(rank, n=few if rank == 1 else many) for rank in range(4)]
    assert short(told(tmp_path, lines))[:2] == (cause, (1,))
