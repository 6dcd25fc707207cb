"""Which words of a ticket are code: a line of a log, a call, a part in brackets, each as one span; and each step once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.model.conclusion import CallRef, Evidence
from hangscope.model.frames import Frame
from hangscope.report.markdown import DIALECTS, render_markdown
from hangscope.report.text import render_text
from hangscope.verdict.phrasing import as_sentence
from tests.conftest import FIXTURES, analyze
from tests.report.samples import document

LINE = "[rank4]:[E1129 01:13:02.1 ProcessGroupNCCL.cpp:629] [PG ID 0 PG GUID 0(default_pg) Rank 4] Watchdog caught (it's late)"


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("rank 0 issued all_reduce([1]) seq 4", "rank 0 issued `all_reduce([1])` seq 4"),
        ("call torch._C._dump_fr_trace() there", "call `torch._C._dump_fr_trace()` there"),
        ("it ran open(os_fspath(file), 'rb')", "it ran `open(os_fspath(file), 'rb')`"),
        ("rank 0: [rank 0] done", "rank 0: `[rank 0]` done"),
        ("sizes [64, 32] Float", "sizes `[64, 32]` Float"),
        ("PG GUID 0(default_pg) is", "PG GUID `0(default_pg)` is"),
        ("on group 0 (default_pg).", "on group 0 (`default_pg`)."),
        (
            f"rank 4 printed '{LINE}'; the ranks' own lines differ",
            f"rank 4 printed `{LINE}`; the ranks' own lines differ",
        ),
        ("it says 'step 15 done'.", "it says 'step 15 done'."),
    ],
)
def test_a_code_span_is_what_belongs_together(text: str, markdown: str) -> None:
    assert DIALECTS["markdown"].escape(text) == markdown


def _with_evidence(*evidence: Evidence) -> str:
    good = document("hang_8")
    assert good.verdict is not None
    return render_markdown(
        replace(good, verdict=replace(good.verdict, evidence=evidence, deciding=(0,), culprit_ranks=()))
    )


def test_a_line_of_a_log_is_one_span() -> None:
    assert f"- `{LINE}`" in _with_evidence(Evidence("log", LINE, 4, quoted=True)).splitlines()
    lead = _with_evidence(Evidence("log", f"rank 4 was blocked until it timed out: {LINE}", 4))
    assert f"- rank 4 was blocked until it timed out: `{LINE}`" in lead.splitlines()


def test_each_step_is_listed_once() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    steps = ("Take a stack of rank 3.", "Check the disk.")
    told = replace(
        good, verdict=replace(good.verdict, advice=steps), missing=("take a stack of rank 3", "Fetch a log")
    )
    shown = render_markdown(told)
    assert "1. Take a stack of rank 3.\n2. Check the disk.\n3. Fetch a log\n" in shown
    assert shown.lower().count("take a stack of rank 3") == 1 and "Collect next" not in shown


def test_a_report_that_nobody_can_open_later_is_not_named(tmp_path: Path) -> None:
    dumps = FIXTURES / "stuck_loader" / "dumps"
    assert "| Report |" not in analyze(dumps, report_path="/dev/null").to_markdown()
    page = tmp_path / "page.html"
    assert f"| Report | `{page}` |" in analyze(dumps, report_path=page).to_markdown()


def test_a_cause_that_is_not_known_is_said_once() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    unknown = replace(good, verdict=replace(good.verdict, cause="unknown", category="unknown"))
    assert "| Cause | `unknown` |" in render_markdown(unknown)


def test_where_nobody_is_named_a_place_is_shown_once() -> None:
    good = document("hang_8")
    assert good.verdict is not None and good.verdict.location is not None
    at = good.verdict.location
    waiting = CallRef("all_reduce", 9, frames=(Frame(at.function, at.file, at.line),))
    both = replace(good, verdict=replace(good.verdict, waiting_call=waiting, culprit_call=None))
    unnamed = replace(both, verdict=replace(both.verdict, culprit_ranks=(), culprits=()))
    place = f"{at.file}:{at.line}"
    for told, times in ((both, 2), (unnamed, 1)):
        assert render_text(told, width=110).count(f"--> {place}") == times
        assert render_markdown(told).count(f"`{place}` in") == times
    assert "The others at" not in render_markdown(unnamed)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("it reports 'closed by peer.'", "It reports 'closed by peer.'"),
        ("it printed 'step 3 ...'", "It printed 'step 3 ...'"),
        ("it printed 'step 3'", "It printed 'step 3'."),
        ("a line (of rank 3.)", "A line (of rank 3.)"),
        ("ranks (0-3)", "Ranks (0-3)."),
    ],
)
def test_a_sentence_that_ends_with_a_quoted_one_has_one_full_stop(text: str, sentence: str) -> None:
    assert as_sentence(text) == sentence
