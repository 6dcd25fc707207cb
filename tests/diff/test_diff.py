"""`hangscope diff`: the same bug or not, from JSON, HTML and folders, and what it makes of a report that is none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.diff import compare, load
from hangscope.errors import NoInputError
from hangscope.model.codec import ShapeError, from_plain, to_plain
from hangscope.report.html.page import render_html
from hangscope.report.json import render_json
from hangscope.report.schema.document import Document
from tests.conftest import FIXTURES, Run
from tests.report.samples import document


def moved(text: str) -> str:
    """Return a report's JSON as another run would leave it: other ranks, hosts and seqs."""
    data = json.loads(text)
    data["verdict"].update(culprit_ranks=[5], seq=data["verdict"]["seq"] + 7)
    data["verdict"]["culprits"] = [{"rank": 5, "host": "other", "local_rank": 5, "device": 5, "pid": 1}]
    return json.dumps(data)


def test_another_run_of_one_bug_is_the_same_bug(tmp_path: Path, inside: Run) -> None:
    one, other = tmp_path / "a.json", tmp_path / "b.html"
    one.write_text(moved(render_json(document("hang_8"))))
    other.write_text(render_html(document("hang_8")))
    done = inside("diff", one, other)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("same bug: both have the fingerprint")
    assert "! ranks:" in done.stdout and "A 5" in done.stdout and "B 3" in done.stdout
    assert "! cause" not in done.stdout


@pytest.mark.slow
def test_a_large_page_is_read_from_its_packed_data(tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    page.write_text(render_html(document("hang_512")))
    assert load(str(page)) == replace(document("hang_512"), page=None)


def test_two_bugs_are_told_apart(tmp_path: Path, inside: Run) -> None:
    report = tmp_path / "a.json"
    report.write_text(render_json(document("hang_8")))
    done = inside("diff", report, FIXTURES / "stuck_loader" / "dumps")
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("not the same bug: they differ in cause")


def test_without_a_usable_report_it_exits_with_3(tmp_path: Path, inside: Run) -> None:
    broken = tmp_path / "a.json"
    broken.write_text('{"schema": "hangscope.report/1", "status": 7}')
    done = inside("diff", broken, broken)
    assert done.returncode == 3 and "no report that can be read" in done.stderr
    assert inside("diff", tmp_path / "gone", tmp_path / "gone").returncode in (2, 3)
    assert inside("diff", broken).returncode == 2


def test_unknown_causes_are_never_the_same_bug() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    unknown = replace(good, verdict=replace(good.verdict, cause="unknown"))
    assert not compare(unknown, unknown).same
    assert compare(document("no_hang"), document("no_hang")).same


def test_without_a_line_of_the_code_nothing_shows_one_bug() -> None:
    good = document("hang_8")
    assert good.verdict is not None
    bare = replace(good, verdict=replace(good.verdict, fingerprint="", location=None, waiting_call=None))
    assert not compare(bare, bare).same and "no line of the job's code" in compare(bare, bare).why


def test_a_page_that_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hangscope.diff.MAX_UNPACKED", 1000)
    page = tmp_path / "a.html"
    page.write_text(render_html(document("hang_512")))
    with pytest.raises(NoInputError):
        load(str(page))


@pytest.mark.parametrize("name", ["hang_8", "stuck", "no_hang", "empty"])
def test_a_document_survives_its_plain_form(name: str) -> None:
    assert from_plain(Document, json.loads(json.dumps(to_plain(document(name))))) == document(name)


PLACES = [
    ("status",),
    ("verdict",),
    ("verdict", "culprit_ranks"),
    ("verdict", "evidence"),
    ("groups",),
    ("ranks",),
    ("page",),
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**70) | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=50)
@given(place=st.sampled_from(PLACES), value=VALUES)
def test_any_value_anywhere_is_a_document_or_a_refusal(place: tuple[str, ...], value: Any) -> None:
    data = to_plain(document("stuck"))
    at = data
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    try:
        render_json(from_plain(Document, data))
    except (ShapeError, ValueError) as refusal:
        assert isinstance(refusal, ShapeError) or "JSON compliant" in str(refusal)
