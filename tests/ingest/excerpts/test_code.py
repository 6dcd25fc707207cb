"""The program's lines that a text shows with their numbers, of those at which its stacks are."""

from __future__ import annotations

from pathlib import Path

from hangscope.ingest.excerpts.code import numbered
from hangscope.verdict.answer.stacks import stacks
from tests.text_lines import told

STACKS = [
    "Process 11: python train.py",
    'Thread 11 (active): "MainThread"',
    "    broadcast (torch/distributed/distributed_c10d.py:2120)",
    "    validate (train.py:143)",
    "    main (train.py:211)",
    "=== rank 1 ===",
    'Thread 12 (active): "MainThread"',
    "    validate (train.py:152)",
    "    main (train.py:211)",
]
CODE = [
    "142    for x in loader:",
    "143        out = model(x)  # DDP",
    "152    acc = (s[0] / s[1]).item()",
    "211 x y",
]


def test_only_statements_at_which_stacks_are_count() -> None:
    lines = [*enumerate([*STACKS, "", *CODE], 1)]
    assert numbered(lines) == ((143, "out = model(x)"), (152, "acc = (s[0] / s[1]).item()"))


def test_a_stack_is_shown_with_the_statement_at_its_line(tmp_path: Path) -> None:
    lines = ["It hangs in the validation.", "", "[rank0]: val it 0", "", "=== rank 0 ===", *STACKS, "", *CODE]
    report = told(tmp_path, lines)
    found = stacks(report.analysis.case)
    assert found is not None
    assert "rank 0 is in broadcast at train.py:143 `out = model(x)`" in found.shows
    assert "rank 1 is at train.py:152 `acc = (s[0] / s[1]).item()`" in found.shows
