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
        (
            "(Actor pid=812) [actor 5] shard 3 of 16",
            "(Actor pid=812) [actor 5] shard 4 of 16",
            (),
        ),  # the driver's
    ],
)
def test_a_traceback_between_two_lines_of_a_rank_is_its_own(
    tmp_path: Path, above: str, below: str, culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, [timeout(0), above, *TRACEBACK, below]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", culprits)


@pytest.mark.parametrize(
    ("above", "culprits"),
    [
        ("2026-12-08 15:01:42 | rank 5 | ERROR | worker failed in step 313", (5,)),
        ("2026-12-08 15:01:42 | rank 5 | INFO | step 313", ()),
    ],
)
def test_a_traceback_below_a_loggers_error_is_of_its_rank(
    tmp_path: Path, above: str, culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, ["2026-12-08 15:01:40 | rank 0 | INFO | step 312", above, *TRACEBACK]))
    assert verdict.culprit_ranks == culprits


def test_an_interrupt_of_the_parent_is_none_of_the_ranks_before_it(tmp_path: Path) -> None:
    error = "2026-12-08 15:01:42 | rank 5 | ERROR | worker failed"
    parent = [
        "^CTraceback (most recent call last):",
        '  File "spawn.py", line 1, in <module>',
        "KeyboardInterrupt",
    ]
    verdict = judged(told(tmp_path, [error, *TRACEBACK, *parent]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", (5,))
