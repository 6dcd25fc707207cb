"""The text that a log is searched for before a form's pattern is tried: every match must contain it."""

from __future__ import annotations

import pytest

from hangscope.ingest.lines.forms import required_text, says


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"watchdog got stuck for \d+ seconds", "watchdog got stuck for "),
        (r"op\.preamble\.length <= op\.nbytes\.? (\d+) vs", "op.preamble.length <= op.nbytes"),
        (r"[Aa]ddress already in use", "ddress already in use"),
        (r"(?:CUDA|HIP) out of memory", " out of memory"),
        (r"exit code:? {1,6}(-?\d)", "exit code"),
        (r"colou?r is red", "r is red"),
        (r"one|two", ""),
        (r"(?i)skipped batch", ""),
    ],
)
def test_every_match_contains_the_text(pattern: str, text: str) -> None:
    assert required_text(pattern) == text


def test_a_pattern_without_such_text_needs_a_literal() -> None:
    with pytest.raises(ValueError, match="literal="):
        says(r"one|two")
    assert says(r"once upon|once more", literal="once ").literal == "once "
