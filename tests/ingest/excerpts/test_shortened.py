"""Lines that a person shortened, or left out and described."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told

WHOLE = "[rank0]:[E ProcessGroupNCCL.cpp:616] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=1800000) ran for 1800049 milliseconds before timing out."


@pytest.mark.parametrize(
    "line",
    [
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, OpType=ALLREDUCE, NumelIn=64, ... ran for 1800051 milliseconds",
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, ...",
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught ...",
        "... (rank 1: the same line, seq 9631)",
    ],
)
def test_what_a_whole_line_says_completes_a_shortened_one(tmp_path: Path, line: str) -> None:
    explanation = judged(told(tmp_path, [WHOLE, line])).explanation
    assert "anks 0 and 1 timed out after 1800 s" in explanation and "all_reduce seq 9631" in explanation


def test_the_same_as_a_shortened_line_is_complete_as_well(tmp_path: Path) -> None:
    lines = [
        WHOLE,
        "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught ...",
        "(ranks 2 3: the same line)",
    ]
    explanation = judged(told(tmp_path, lines)).explanation
    assert "anks 0-3 timed out after 1800 s" in explanation and " 0 ms" not in explanation


def test_a_shortened_line_of_another_seq_is_not_completed(tmp_path: Path) -> None:
    line = "[rank1]:[E ProcessGroupNCCL.cpp:616] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, ..."
    assert "anks 0 and 1 timed out" not in judged(told(tmp_path, [WHOLE, line])).explanation
