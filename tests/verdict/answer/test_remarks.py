"""Remarks: what is replied to a reporter's guess, and what the evidence means."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hangscope.knowledge.catalog import CATALOG
from hangscope.verdict.answer.remarks import Remark, table
from tests.text_lines import judged, timeout, told

SPINS = "GPUs at 100% are no sign of work"
FIRST = "Whose timeout is printed first shows nothing"


@pytest.mark.parametrize("remark", table(), ids=lambda remark: str(remark.says)[:40])
def test_an_entry_can_fit(remark: Remark) -> None:
    assert set(remark.causes) <= set(CATALOG) and (not remark.lines or remark.kinds)
    re.compile(f"(?i){remark.people}")
    assert remark.people or remark.causes or remark.lines


@pytest.mark.parametrize(
    ("guess", "reply"),
    [
        ("All GPUs sit at 100 % so they must still be computing something.", SPINS),
        ("rank 0 is the first in the log, so I think that rank 0 causes it.", FIRST),
    ],
)
def test_a_guess_is_answered(tmp_path: Path, guess: str, reply: str) -> None:
    lines = [timeout(r) for r in range(3)]
    assert reply in judged(told(tmp_path, [*lines, "", guess])).explanation
    assert reply not in judged(told(tmp_path, lines)).explanation


def test_words_of_a_program_are_no_guess(tmp_path: Path) -> None:
    lines = [*(timeout(r) for r in range(3)), "[2026-04-12 09:32:31] [INFO] all gpus at 100 % memory"]
    assert SPINS not in judged(told(tmp_path, lines)).explanation
