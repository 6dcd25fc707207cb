"""MPICH's report of a process that ended badly."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import told
from tests.verdicts import blame


def _end(rank: int, signal: int) -> list[str]:
    return [
        "=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES",
        f"=   RANK {rank} PID {4000 + rank} RUNNING AT cn-a01",
        f"=   KILLED BY SIGNAL: {signal} (Killed)",
    ]


def test_the_process_that_the_launcher_did_not_end_is_named(tmp_path: Path) -> None:
    lines = ["[0] epoch 0 it 340 loss 4.87", *_end(2, 9), *_end(3, 15)]
    assert blame(told(tmp_path, lines)) == ("hang", "crashed_rank", (2,))
