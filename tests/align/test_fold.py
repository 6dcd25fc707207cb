"""Ranks are folded by program: who deviates from the ranks of the same role is named, whatever would unblock the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from hangscope.align.edits import How
from hangscope.align.fold import Deviation, fold
from hangscope.align.program import EXACT, Programs, Tokens
from hangscope.model.kinds import Kinds
from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all
from tests.verdicts import blame, level

GRID = {
    "0": ("default_pg", range(8)),
    **{f"dp{n}": ("dp", (n, n + 4)) for n in range(4)},
}  # data-parallel groups of two, side by side


def _grid() -> list[Recorder]:
    recorders = [Recorder(rank, {n: g for n, g in GRID.items() if rank in g[1]}) for rank in range(8)]
    for recorder in recorders:
        for _ in range(6):
            recorder.call("all_reduce", f"dp{recorder.rank % 4}", line=41).call("all_reduce", line=43)
    return recorders


def _folded(recorders: list[Recorder], folder: Path) -> list[Deviation]:
    analysis: Any = analyze(write_all(recorders, folder)).analysis
    return fold(analysis.incident, Programs(analysis.incident))


def test_a_swapped_order_against_sibling_groups_names_its_rank(tmp_path: Path) -> None:
    """A group of two has no majority: seven ranks of the same role have."""
    recorders = _grid()
    for recorder in recorders:
        own = f"dp{recorder.rank % 4}"
        order = [("0", 43), (own, 41)] if recorder.rank == 5 else [(own, 41), ("0", 43)]
        done = recorder.rank % 4 != 1
        for place, (group, line) in enumerate(order):
            recorder.call(
                "all_reduce", group, line=line, state="completed" if done and not place else "scheduled"
            )
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "collective_order_mismatch", (5,)) and level(report) == "high"


def test_a_list_that_only_ends_earlier_is_no_deviation(tmp_path: Path) -> None:
    recorders = _grid()
    for recorder in recorders[1:]:
        recorder.call("all_reduce", f"dp{recorder.rank % 4}", line=41, state="started")
    assert _folded(recorders, tmp_path) == []


def test_a_call_left_out_in_the_middle_is_found_by_what_matches_again(tmp_path: Path) -> None:
    recorders = _grid()
    for recorder in recorders:
        if recorder.rank != 6:
            recorder.call("all_reduce", f"dp{recorder.rank % 4}", sizes=[[9]], line=44)
        for _ in range(3):
            recorder.call("all_reduce", line=45, state="scheduled").call("all_reduce", line=46)
    (found,) = _folded(recorders, tmp_path)
    assert (found.ranks, found.votes, found.edit.how) == ((6,), 7, How.LEFT_OUT)
    assert len(found.edit.peers) == 1 and found.edit.matched == 6


def test_who_agrees_with_nobody_that_stays_is_compared_with_nobody(tmp_path: Path) -> None:
    """Ranks 3 to 5 have lost the call at which rank 0 left, and all that had it there leave later."""
    recorders = [Recorder(rank, {"0": ("default_pg", range(6))}) for rank in range(6)]
    for recorder in recorders:
        recorder.call("all_reduce", times=3).call("all_reduce" if recorder.rank else "broadcast")
        recorder.call("all_reduce", times=4).call("all_gather" if recorder.rank in (1, 2) else "all_reduce")
        recorder.ring = 3 if recorder.rank > 2 else 40
    assert [found.ranks for found in _folded(recorders, tmp_path)] == [(1, 2)]


def test_a_rank_that_was_not_seen_in_a_group_of_unknown_members_is_no_deviation(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", range(4)), "1": ("", range(1, 4))}
    recorders = [Recorder(rank, groups, backend="gloo") for rank in range(4)]
    recorders[0].call("barrier", state="scheduled")
    for recorder in recorders[1:]:
        recorder.call("all_reduce", "1", times=5)
    assert _folded(recorders, tmp_path) == []


def test_a_stale_dump_makes_a_suspect_and_no_culprit(tmp_path: Path) -> None:
    """Rank 3's dump lacks a collective that its peers completed; they wait for it in the next one."""
    recorders = [Recorder(rank, {"0": ("default_pg", range(4))}) for rank in range(4)]
    for recorder in recorders:
        recorder.call("all_reduce", times=5 if recorder.rank == 3 else 7)
        if recorder.rank != 3:
            recorder.call("all_reduce", state="started")
    report = analyze(write_all(recorders, tmp_path))
    verdict = report.verdict
    assert verdict is not None and verdict.culprit_ranks == () and verdict.suspect_ranks == (3,)
    assert verdict.collect[0].ranks == (3,)


def test_behind_a_pipeline_that_was_not_collected_the_next_stages_are_suspects(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", range(8)), **{f"pp{n}": ("pp", (n, n + 2, n + 4, n + 6)) for n in (0, 1)}}
    recorders = [Recorder(rank, {n: g for n, g in groups.items() if rank in g[1]}) for rank in (0, 1)]
    for recorder in recorders:
        following, pipeline = recorder.rank + 2, f"pp{recorder.rank}"
        for _ in range(6):
            recorder.send(following, pipeline)
        recorder.send(following, pipeline, state="started" if recorder.rank else "completed")
        if recorder.rank == 0:
            recorder.call("all_reduce", line=43, state="started")
    report = analyze(write_all(recorders, tmp_path))
    assert report.verdict is not None and report.verdict.suspect_ranks == (3, 5, 7)


def test_the_roots_of_sibling_groups_are_no_difference(tmp_path: Path) -> None:
    """NCCL's logs hold the root as a global rank, another one in each tensor-parallel group."""
    analysis: Any = analyze(write_all(_grid(), tmp_path)).analysis
    incident = analysis.incident
    kinds = [replace(incident.kinds[0], op="broadcast", root=root) for root in (0, 4)]
    tokens = Tokens(replace(incident, kinds=Kinds(kinds, np.array([0, 1]))))
    one, other = tokens.of(np.array([1, 1]), np.array([0, 1]), EXACT)
    assert one == other
