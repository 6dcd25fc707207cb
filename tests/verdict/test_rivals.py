"""Explanations that the inputs contradict are ruled out, and none of them is listed as possible."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.api import Report
from hangscope.verdict.rivals import contradicted
from tests.dump_writer import Recorder, job
from tests.text_lines import told
from tests.verdicts import judged


def _fact(report: Report, verdict: str, cause: str, rank: int) -> str:
    return contradicted(report.analysis.case, verdict, cause, (rank,))


@pytest.mark.parametrize(("calls", "kept_up"), [((6, 1), True), ((5, 1), False), ((6, 2), False)])
def test_a_rank_that_issued_what_its_peers_issued_skipped_nothing(
    tmp_path: Path, calls: tuple[int, int], kept_up: bool
) -> None:
    recorders = job(4)
    for recorder in recorders:
        done, pending = calls if recorder.rank == 2 else (6, 1)
        recorder.call("all_reduce", times=done).call("all_reduce", times=pending, state="scheduled")
    report = judged(tmp_path, recorders)
    for cause in ("rank_conditional_collective", "stuck_rank"):
        assert bool(_fact(report, "network_stall", cause, 2)) == kept_up
    assert not _fact(report, "network_stall", "crashed_rank", 2)


def test_another_call_in_place_of_a_skipped_one_is_no_agreement(tmp_path: Path) -> None:
    recorders: list[Recorder] = job(3)
    for recorder in recorders:
        op = "broadcast" if recorder.rank == 1 else "all_reduce"
        recorder.call("all_reduce", times=6).call(op, state="scheduled")
    assert not _fact(judged(tmp_path, recorders), "collective_mismatch", "rank_conditional_collective", 1)


@pytest.mark.parametrize(("lines", "excluded"), [(["joining"], True), (["step 4 of 10"], False)])
def test_who_still_joins_has_issued_no_collective_that_could_differ(
    tmp_path: Path, lines: list[str], excluded: bool
) -> None:
    report = told(tmp_path, {"rank0.log": lines, "rank1.log": lines})
    for cause in ("collective_mismatch", "rank_conditional_collective"):
        assert bool(_fact(report, "init_hang", cause, 1)) == excluded
    assert not _fact(report, "init_hang", "crashed_rank", 1)
