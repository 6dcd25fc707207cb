"""The analyzer on simulated incidents: a sample of what `benchmarks/score.py` measures, and never an exception."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.errors import NoInputError
from tests.conftest import analyze
from tests.simulator import FAULTS, WAYS, least_size, write_incident

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", list(FAULTS)[1::3])
def test_full_data_names_the_faulty_ranks(fault: str, tmp_path: Path) -> None:
    truth = write_incident(tmp_path, fault, 100, world_size=16)
    report = analyze(tmp_path / "dumps")
    named = sorted(report.verdict.culprit_ranks) if report.verdict is not None else []
    assert named in [sorted(ranks) for ranks in truth.answers or [truth.culprits]], report.to_text()
    assert truth.allows(report.status) and (truth.status or report.status == "hang"), report.to_text()


@settings(max_examples=8, deadline=None, derandomize=True)
@given(fault=st.sampled_from(sorted(FAULTS)), seed=st.integers(1000, 2000), way=st.sampled_from(list(WAYS)))
def test_whatever_is_lost_the_report_is_whole_and_names_only_ranks_of_the_job(
    fault: str, seed: int, way: str
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_incident(Path(folder), fault, seed, way=way, world_size=least_size(fault))
        dumps = Path(folder) / "dumps"
        try:
            report = analyze(dumps)
        except NoInputError:
            return
        assert report.status in ("hang", "no_hang", "inconclusive")
        data = report.to_dict()
        assert not [w for w in data["warnings"] if w["code"] in ("rule_failed", "parser_failed")]
        if report.verdict is not None:
            assert all(0 <= r < data["world_size"] for r in report.verdict.culprit_ranks)
            assert report.verdict.explains.ranks <= len(report.verdict.waiting_ranks)
            assert report.verdict.evidence


@pytest.mark.parametrize(("fault", "seed"), [("stuck_pending", 34000), ("stuck_pending", 34002)])
def test_dumps_alone_do_not_tell_a_busy_host_from_an_order_of_its_own(
    fault: str, seed: int, tmp_path: Path
) -> None:
    """Its last call is pending on a group that its peers have not come to: the circle is the same."""
    write_incident(tmp_path, fault, seed, way="dumps only")
    verdict = analyze(tmp_path / "dumps").verdict
    assert verdict is not None and verdict.confidence == "low"
    assert "stuck_rank" in {verdict.cause, *(other.cause for other in verdict.alternatives)}


def test_who_skips_the_call_of_all_is_named_and_not_its_neighbour_who_waits_there(tmp_path: Path) -> None:
    """Few ranks share its role, but nearly all of the group are in the call that it left out."""
    write_incident(tmp_path, "skipped_call", 1, way="full")
    verdict = analyze(tmp_path / "dumps").verdict
    assert verdict is not None and verdict.culprit_ranks == (4,)
    assert verdict.cause == "rank_conditional_collective"
