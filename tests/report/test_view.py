"""A picture that cannot be drawn costs nobody the verdict."""

from __future__ import annotations

from typing import Any

import pytest

import hangscope
from hangscope.report import view
from tests.conftest import FIXTURES
from tests.in_thread import InThisThread


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


def test_a_notebook_shows_the_page_in_a_frame() -> None:
    report = hangscope.analyze(FIXTURES / "stuck_loader" / "dumps")
    frame = report._repr_html_()
    assert (
        frame.startswith("<iframe sandbox=") and "&lt;!DOCTYPE html&gt;" in frame and "<script" not in frame
    )
