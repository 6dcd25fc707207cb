"""No report contradicts itself: a sample of simulated incidents; `test_fixtures.py` asks the same of the captured ones,
and `benchmarks/score.py --corpus` of the corpus.

`python -m tests.report.consistency` holds 300 simulated incidents to the same rules.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from hangscope.report.schema.document import Document, Explains
from tests.conftest import analyze
from tests.report.consistency import contradictions
from tests.report.rules_of_pictures import (
    chains_end_at_the_root,
    nothing_is_cut_without_a_count,
    root_is_the_culprit,
    rows_differ_where_they_part,
    states_agree,
)
from tests.report.rules_of_texts import (
    advice_fits_a_job_that_ended,
    no_slot_is_empty,
    the_ledger_agrees,
    why_names_the_culprit,
)
from tests.report.samples import altered, document
from tests.simulator import FAULTS, WAYS, least_size, write_incident

Rule = Callable[[Document], Iterator[str]]
SIMULATED = [
    pytest.param(fault, sorted(WAYS)[i % len(WAYS)], marks=[pytest.mark.slow] if i % 4 else [])
    for i, fault in enumerate(sorted(FAULTS))
    if i % 2 == 0
]


@pytest.mark.parametrize(("fault", "way"), SIMULATED)
def test_a_simulated_incident_is_told_without_contradiction(fault: str, way: str, tmp_path: Path) -> None:
    write_incident(tmp_path, fault, 7100, way=way, world_size=least_size(fault))
    if not any(path.is_file() for path in (tmp_path / "dumps").rglob("*")):
        pytest.skip("this way of collecting left nothing")
    assert contradictions(analyze(tmp_path / "dumps")) == []


def found_out() -> Iterator[tuple[Rule, Document]]:
    """Yield each rule with a document that breaks it."""
    good = document("hang_8")
    verdict, page = good.verdict, good.page
    assert verdict is not None and page is not None and page.waitfor and page.calls and page.rankmap
    other_root = tuple(replace(n, ranks="5") if n.root else n for n in page.waitfor.nodes)
    yield root_is_the_culprit, altered(good, "page.waitfor", nodes=other_root)
    yield chains_end_at_the_root, altered(good, "page.waitfor", edges=())
    equal = replace(next(row for row in page.calls.rows if not row.differs), differs=1)
    yield rows_differ_where_they_part, altered(good, "page.calls", rows=(equal,))
    for text in ("rank 3 waits at seq on group .", "in call None", "rank 3 (), which waits"):
        yield no_slot_is_empty, replace(good, headline=text)
    yield nothing_is_cut_without_a_count, altered(good, "page.calls", left_out=())
    fold = page.rankmap.folds[0]
    short = (replace(fold, rows=fold.rows[:-1]),)
    yield nothing_is_cut_without_a_count, altered(good, "page.rankmap", folds=short)
    idle = tuple(replace(row, state="idle") for row in page.detail.ranks)
    yield states_agree, altered(good, "page.detail", ranks=idle)
    late = ("Take a stack of rank 3 now (py-spy dump --pid PID).",)
    ended = altered(good, "page.strip", life="ended")
    yield advice_fits_a_job_that_ended, altered(ended, "verdict", advice=late)
    yield the_ledger_agrees, replace(good, hypotheses=(replace(good.hypotheses[0], cause="unknown"),))
    yield the_ledger_agrees, altered(good, "verdict", explains=Explains(15, 15))


def test_a_contradiction_is_found_out() -> None:
    for rule, bad in found_out():
        assert list(rule(document("hang_8"))) == [] and list(rule(bad)), rule.__name__


def test_a_reason_always_names_the_culprit_even_where_no_evidence_does() -> None:
    silent = altered(document("hang_8"), "verdict", evidence=(), deciding=())
    assert list(why_names_the_culprit(silent)) == []
