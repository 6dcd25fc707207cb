"""Tracebacks without a prefix, between two lines of one rank."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, timeout, told

TRACEBACK = [
    "Traceback (most recent call last):",
    '  File "/workspace/main.py", line 288, in run',
    "    loss.backward()",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.81 GiB. GPU 5 has a total capacity of 79.10 GiB.",
]


@pytest.mark.parametrize(
    ("above", "below", "culprits"),
    [
        ("[rank5] caught exception, cleaning up", "[rank5] destroying process group", (5,)),
        ("[rank5] caught exception, cleaning up", "[rank2] destroying process group", ()),
        ("caught exception, cleaning up", "[rank5] destroying process group", ()),
        ("[rank5] caught exception, cleaning up", "", ()),
    ],
)
def test_a_traceback_between_two_lines_of_a_rank_is_its_own(
    tmp_path: Path, above: str, below: str, culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, [timeout(0), above, *TRACEBACK, below]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", culprits)
