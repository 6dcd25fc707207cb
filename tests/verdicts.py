"""What tests ask of a report: whom it blames, and what it says."""

from __future__ import annotations

from pathlib import Path

from hangscope.api import Report
from tests.conftest import FIXTURES


def blame(report: Report) -> tuple[str, str | None, tuple[int, ...]]:
    """Return (status, cause, culprits)."""
    verdict = report.verdict
    return report.status, verdict.cause if verdict else None, verdict.culprit_ranks if verdict else ()


def culprits(report: Report) -> tuple[int, ...]:
    assert report.status == "hang", (report.status, report.to_text())
    assert report.verdict is not None
    return report.verdict.culprit_ranks


def said(report: Report) -> str:
    """Return everything that the full text report says, on one line."""
    return " ".join(report.to_text(verbose=True, width=110).split())


def recorder_of(name: str) -> Path:
    return FIXTURES / name / "dumps" / "recorder"
