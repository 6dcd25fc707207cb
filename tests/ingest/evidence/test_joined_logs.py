"""The logs of two nodes in one text, one below the other: a clock that goes back begins no attempt."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told

TIMEOUT = "[rank{rank}]:[E {clock} ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=2, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800007 milliseconds before timing out."
FAILED = "E {clock} torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 3 (pid: 8104) of binary: python"


@pytest.mark.parametrize(
    ("clock", "ranks"),
    [("10:30:14", "anks 0 and 13 timed"), ("11:30:14", "ank 13 timed"), ("00:01:14", "ank 13 timed")],
)
def test_lines_below_an_agents_end_are_of_another_attempt_only_if_they_are_later(
    tmp_path: Path, clock: str, ranks: str
) -> None:
    lines = [TIMEOUT.format(rank=0, clock="10:30:14"), FAILED.format(clock="10:30:22")]
    lines.append(TIMEOUT.format(rank=13, clock=clock))
    assert ranks in judged(told(tmp_path, lines)).explanation


def test_a_rank_of_another_node_below_an_agents_end_is_of_the_same_attempt(tmp_path: Path) -> None:
    lines = [
        "[rank11]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 6.12 GiB.",
        FAILED.format(clock="10:30:22"),
        "[rank2]: socketProgress: Connection closed by remote peer node7<39512>",
    ]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (11,))
