"""Copies of several files in one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import judged, told

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
WAITS = "RuntimeError: [/gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv operation to complete"


def raised(error: str) -> list[str]:
    return [
        "Traceback (most recent call last):",
        '  File "/workspace/train.py", line 9, in step',
        "    run()",
        error,
    ]


@pytest.mark.parametrize(
    ("above", "below", "culprits"),
    [
        ("== worker_0/rank_03.log", "== worker_1/rank_11.log", (11,)),
        ("==> rank3.log <==", "==> rank11.log <==", (11,)),
        ("==> node3.log <==", "==> node11.log <==", ()),
        ("==> rank3.log <==", "==> node1.log <==", ()),
        ("==> rank3.log <==", "", ()),
    ],
)
def test_lines_below_the_name_of_a_ranks_log_are_its_own(
    tmp_path: Path, above: str, below: str, culprits: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, [above, *raised(WAITS), below, *raised(OOM)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", culprits)
