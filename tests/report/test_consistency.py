"""No report contradicts itself: a sample of simulated incidents; `test_fixtures.py` asks the same of the captured ones.

`python -m tests.report.consistency` holds 300 simulated incidents to the same rules.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.report.schema.document import Document, Explains
from tests.conftest import FIXTURES, analyze
from tests.report.consistency import (
    chains_end_at_the_root,
    contradictions,
    no_slot_is_empty,
    nothing_is_cut_without_a_count,
    nothing_is_told_too_often,
    root_is_the_culprit,
    rows_differ_where_they_part,
    states_agree,
    the_ledger_agrees,
    why_names_the_culprit,
)
from tests.report.corpus_reports import corpus_reports
from tests.report.samples import document
from tests.simulator import FAULTS, WAYS, write_incident

SIMULATED = [
    pytest.param(fault, sorted(WAYS)[i % len(WAYS)], marks=[pytest.mark.slow] if i % 3 else [])
    for i, fault in enumerate(sorted(FAULTS))
]


@pytest.mark.parametrize(("fault", "way"), SIMULATED)
def test_a_simulated_incident_is_told_without_contradiction(fault: str, way: str, tmp_path: Path) -> None:
    write_incident(tmp_path, fault, 7100, way=way)
    if not any(path.is_file() for path in (tmp_path / "dumps").rglob("*")):
        pytest.skip("this way of collecting left nothing")
    assert contradictions(analyze(tmp_path / "dumps")) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", sorted(p.name.removesuffix(".tar.xz") for p in (FIXTURES / "corpus").glob("*.tar.xz"))
)
def test_a_set_of_the_corpus_is_told_without_contradiction(name: str) -> None:
    every_second = corpus_reports(name, 2)  # all of them would take minutes
    found = {key: bad for key, report in every_second if (bad := contradictions(report))}
    assert found == {}


def wrong(name: str = "hang_8") -> Document:
    return document(name)


def test_a_graph_whose_root_is_another_rank_is_found_out() -> None:
    good = wrong()
    assert good.page is not None and good.page.waitfor is not None and good.verdict is not None
    nodes = tuple(replace(n, ranks="5") if n.root else n for n in good.page.waitfor.nodes)
    bad = replace(good, page=replace(good.page, waitfor=replace(good.page.waitfor, nodes=nodes)))
    assert list(root_is_the_culprit(good)) == [] and list(root_is_the_culprit(bad))


def test_a_chain_that_ends_elsewhere_is_found_out() -> None:
    good = wrong()
    assert good.page is not None and good.page.waitfor is not None
    bad = replace(good, page=replace(good.page, waitfor=replace(good.page.waitfor, edges=())))
    assert list(chains_end_at_the_root(good)) == [] and list(chains_end_at_the_root(bad))


def test_equal_cells_under_a_difference_are_found_out() -> None:
    good = wrong()
    assert good.page is not None and good.page.calls is not None
    row = next(row for row in good.page.calls.rows if not row.differs)
    bad = replace(
        good, page=replace(good.page, calls=replace(good.page.calls, rows=(replace(row, differs=1),)))
    )
    assert list(rows_differ_where_they_part(good)) == [] and list(rows_differ_where_they_part(bad))


def test_a_reason_always_names_the_culprit_even_where_no_evidence_does() -> None:
    good = wrong()
    assert good.verdict is not None
    silent = replace(good.verdict, evidence=(), deciding=())
    assert list(why_names_the_culprit(replace(good, verdict=silent))) == []


def test_an_empty_slot_is_found_out() -> None:
    good = wrong()
    for text in ("rank 3 waits at seq on group .", "in call None", "rank 3 (), which waits"):
        assert list(no_slot_is_empty(replace(good, headline=text))), text


def test_what_is_left_out_without_a_count_is_found_out() -> None:
    good = wrong()
    assert good.page is not None and good.page.calls is not None and good.page.rankmap is not None
    calls = replace(good.page.calls, left_out=())
    fold = good.page.rankmap.folds[0]
    folds = (replace(fold, rows=fold.rows[:-1]),)
    assert list(nothing_is_cut_without_a_count(good)) == []
    for page in (
        replace(good.page, calls=calls),
        replace(good.page, rankmap=replace(good.page.rankmap, folds=folds)),
    ):
        assert list(nothing_is_cut_without_a_count(replace(good, page=page)))


def test_a_rank_in_two_states_is_found_out() -> None:
    good = wrong()
    assert good.page is not None
    rows = tuple(replace(row, state="idle") for row in good.page.detail.ranks)
    detail = replace(good.page.detail, ranks=rows)
    assert list(states_agree(good)) == []
    assert list(states_agree(replace(good, page=replace(good.page, detail=detail))))


def test_advice_that_is_told_twice_or_too_late_is_found_out() -> None:
    good = wrong()
    assert good.page is not None and good.page.strip is not None and good.verdict is not None
    late = ("Take a stack of rank 3 now (py-spy dump --pid PID).",)
    ended = replace(good.page, strip=replace(good.page.strip, life="ended"))
    assert list(nothing_is_told_too_often(good)) == []
    for advice, page in ((good.verdict.advice * 2, good.page), (late, ended)):
        bad = replace(good, verdict=replace(good.verdict, advice=advice), page=page)
        assert list(nothing_is_told_too_often(bad))


def test_a_ledger_that_speaks_against_the_verdict_is_found_out() -> None:
    good = wrong()
    assert good.verdict is not None
    other = replace(good, hypotheses=(replace(good.hypotheses[0], cause="unknown"),))
    whole = replace(good.verdict, explains=Explains(15, 15))
    assert list(the_ledger_agrees(good)) == []
    assert list(the_ledger_agrees(other)) and list(the_ledger_agrees(replace(good, verdict=whole)))
