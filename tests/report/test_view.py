"""A picture that cannot be drawn costs nobody the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import hangscope
from hangscope.report import view
from tests.conftest import FIXTURES
from tests.in_thread import InThisThread
from tests.text_lines import timeout, told


def test_without_its_pictures_a_report_is_whole_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*parts: Any) -> Any:
        raise IndexError("no such node")

    monkeypatch.setattr(view, "page_data", fails)
    report = hangscope.analyze(FIXTURES / "stuck_loader" / "dumps", executor=InThisThread())
    assert report.verdict is not None and report.verdict.culprit_ranks == (3,)
    assert [w.message for w in report.warnings if w.code == "pictures_failed"] == [
        "the page's pictures could not be drawn: IndexError: no such node"
    ]
    assert "Rank 3 never entered" in report.to_html() and "Rank 3" in report.to_markdown()


def test_a_line_that_one_rank_alone_printed_is_a_field_and_in_every_output(tmp_path: Path) -> None:
    lines = [f"step {step} loss 1.{step}" for step in range(9)]
    logs = {f"rank{rank}.log": list(lines) for rank in range(4)}
    logs["rank2.log"][8:8] = ["cache entry 77 is stale, reading it again"]
    report = told(tmp_path, {**logs, "rank0.log": [*logs["rank0.log"], timeout(0)]})
    (line,) = report.to_dict()["outlier_lines"]
    assert (line["ranks"], line["how"], line["note"]) == ([2], "only", "only rank 2 printed this")
    for shown in (report.to_text(verbose=True, width=110), report.to_html()):
        assert "only rank 2 printed this" in shown and "cache entry 77 is stale" in shown


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    report = hangscope.analyze(FIXTURES / "stuck_loader" / "dumps")
    assert repr(report) == f"<hangscope.Report {report.status}: {report.document.title}>"
    frame = report._repr_html_()
    assert (
        frame.startswith("<iframe sandbox=") and "&lt;!DOCTYPE html&gt;" in frame and "<script" not in frame
    )
