"""The collective that a verdict gives for the blocked ranks is the one in which they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.simulator import write_incident


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
