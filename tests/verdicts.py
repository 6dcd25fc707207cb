"""What tests ask of a report: whom it blames, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hangscope.api import Report
from tests.conftest import FIXTURES, analyze
from tests.dump_writer import Recorder, write_all

TIMED_OUT = "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 1800000ms for recv operation to complete"


def judged(folder: Path, recorders: Sequence[Recorder] = (), **logs: list[str]) -> Report:
    """Return the report on dumps and logs (by the name of their file, without its ending)."""
    if recorders:
        write_all(list(recorders), folder)
    folder.mkdir(exist_ok=True)
    for name, lines in logs.items():
        (folder / f"{name}.log").write_text("\n".join(lines) + "\n")
    return analyze(folder)


def level(report: Report) -> str:
    return report.verdict.confidence if report.verdict is not None else "none"


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
