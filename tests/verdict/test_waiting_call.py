"""The collective that a verdict gives for the blocked ranks is the one in which they are, and how their waits ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.report.html.page import Page
from tests.conftest import analyze
from tests.dump_writer import Recorder, world
from tests.simulator import write_incident
from tests.text_lines import CLOSED, DEFAULT, timeout
from tests.verdicts import blame, judged, said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "seed"),
    [("gpu_stall", 7101), ("skipped_call", 7100), ("other_order", 7102), ("stuck_rank", 7101)],
)
def test_ranks_are_blocked_in_a_collective_that_their_dumps_show_as_open(
    tmp_path: Path, fault: str, seed: int
) -> None:
    write_incident(tmp_path, fault, seed, way="full")
    report = analyze(tmp_path / "dumps")
    verdict, page = report.verdict, report.document.page
    assert verdict is not None and page is not None and page.calls is not None
    opened = {
        (cell.op, cell.seq)
        for row in page.calls.rows
        for cell, side in zip(row.cells, page.calls.classes, strict=True)
        if cell.state in ("pending", "started") and side.role == "waiting"
    }
    call = verdict.waiting_call
    assert call is not None and verdict.in_call and (call.op, call.seq) in opened


def test_how_each_wait_ended_is_said_in_the_summary_the_first_screen_and_the_json(tmp_path: Path) -> None:
    recorders = [Recorder(rank, world(4)).call("all_reduce", times=9) for rank in range(4)]
    for recorder in recorders[:3]:
        recorder.call("all_reduce", state="started")
    logs = {
        "rank0": [timeout(0, group=DEFAULT, seq=10)],
        "rank1": [f"[rank1]: {CLOSED}"],
        "rank2": ["step 9"],
    }
    report = judged(tmp_path, recorders, **logs)
    assert blame(report)[1:] == ("stuck_rank", (3,)) and report.verdict is not None
    assert "Rank 0 timed out, rank 1 failed and rank 2 is blocked in all_reduce seq 10" in said(report)
    assert "rank 0 timed out, rank 1 failed and rank 2 is blocked" in report.verdict.summary
    assert Page(report.document).first.waiting == "rank 0 timed out; rank 1 failed; rank 2 is blocked"
    data = report.to_dict()
    assert data["verdict"]["wait_ends"] == {"timed_out": [0], "failed": [1]}
    assert [row["standing"] for row in data["ranks"]] == ["timed out", "failed", "blocked", "culprit"]
