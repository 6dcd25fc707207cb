"""Ranks of one role whose counts of calls contradict each other are found even where the calls themselves were overwritten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hangscope.align.counters import Contradiction, contradictions
from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all
from tests.verdicts import culprits

SIZE, OTHER, DIMENSION = 12, 7, 3
GRID = {
    "0": ("default_pg", range(SIZE)),
    **{f"dp{n}": ("dp", range(n, SIZE, DIMENSION)) for n in range(DIMENSION)},
}


def _job(last: int | None = None, early: int | None = None, steps: int = 20) -> list[Recorder]:
    """Return ranks that issue one collective on each group a step; rank 7 begins its last step with the other one."""
    recorders = [Recorder(rank, {n: g for n, g in GRID.items() if rank in g[1]}) for rank in range(SIZE)]
    for recorder in recorders:
        own = f"dp{recorder.rank % DIMENSION}"
        for _ in range(steps - 5 * (recorder.rank == early)):
            recorder.call("all_reduce", own, line=41).call("all_reduce", line=43)
        if recorder.rank == OTHER:
            recorder.call("all_reduce", line=43, state="scheduled")
        else:
            waits = recorder.rank % DIMENSION == OTHER % DIMENSION
            recorder.call("all_reduce", own, line=41, state="scheduled" if waits else "completed")
            if not waits:
                recorder.call("all_reduce", line=43, state="scheduled")
        if last is not None:
            recorder.ring = last
    return recorders


def _found(recorders: list[Recorder], folder: Path) -> tuple[list[Contradiction], Any]:
    report = analyze(write_all(recorders, folder))
    return contradictions(report.analysis.incident), report


@pytest.mark.parametrize("last", [None, 3])
@pytest.mark.parametrize("early", [None, 6])
def test_the_rank_that_is_ahead_in_one_dimension_and_behind_in_another_is_named(
    tmp_path: Path, last: int | None, early: int | None
) -> None:
    found, report = _found(_job(last, early), tmp_path)
    assert [(c.ranks, c.ahead[2], c.behind[2]) for c in found] == [((OTHER,), "default_pg", "dp")]
    assert found[0].peers == (1, 4, 10)
    assert culprits(report) == (OTHER,)


def test_ranks_that_are_only_behind_contradict_nobody(tmp_path: Path) -> None:
    recorders = _job(early=6)
    found, _ = _found([recorder for recorder in recorders if recorder.rank != OTHER], tmp_path)
    assert not found


def test_two_ranks_that_contradict_each_other_name_nobody(tmp_path: Path) -> None:
    found, _ = _found([r for r in _job() if r.rank in (1, OTHER)], tmp_path)
    assert not found


def test_groups_that_differ_only_in_a_number_of_their_description_are_of_one_kind(tmp_path: Path) -> None:
    recorders = _job()
    for recorder in recorders:
        own = f"dp{recorder.rank % DIMENSION}"
        recorder.groups = {
            n: (f"replica_{n[2:]}" if n == own else g[0], g[1]) for n, g in recorder.groups.items()
        }
        for entry in recorder.entries:
            name = entry["process_group"][0]
            entry["process_group"] = (name, recorder.groups[name][0])
    _, report = _found(recorders, tmp_path)
    assert culprits(report) == (OTHER,)
