"""Failures of torch's analyzer: what it cannot see.

What torch 2.13's own analyzer gets wrong, one test per known failure: same inputs, the known truth. Each docstring says
what that analyzer does with such an input. Nothing here may end in silence, in a traceback or in a verdict against a rank
that did nothing wrong.
"""

from __future__ import annotations

import re
from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, stuck, world, write_all
from tests.verdicts import blame, culprits, said

# -- F19 to F22: what it cannot see --------------------------------------------------------------------------------


def test_f19_an_all_to_all_with_wrong_splits_is_not_silence(tmp_path: Path) -> None:
    """No output: all ranks joined with equal totals, only the splits (which no recorder keeps) differ."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=8).call("all_to_all", sizes=[[32, 4]], line=52, state="scheduled")
    report = analyze(write_all(recorders, tmp_path))
    verdict = report.verdict
    assert report.status == "hang" and verdict is not None
    assert (verdict.op, verdict.seq, verdict.culprit_ranks, verdict.waiting_ranks) == (
        "all_to_all",
        9,
        (),
        (0, 1, 2, 3),
    )
    assert verdict.confidence != "high"
    assert "split" in said(report)


def test_f20_a_group_that_pg_config_does_not_list_yet(tmp_path: Path) -> None:
    """KeyError: NCCL fills `pg_config` at a communicator's first use, so an early dump lacks groups its entries name."""
    groups = {**world(4), "1": ("mesh_dp", (0, 2)), "2": ("mesh_dp", (1, 3))}
    recorders = job(4, groups=groups)
    for recorder in recorders:
        own = "1" if recorder.rank % 2 == 0 else "2"
        recorder.call("all_reduce", times=5).call("all_reduce", own, sizes=[[64]], line=47)
        if recorder.rank != 2:
            recorder.call(
                "all_reduce", own, sizes=[[64]], line=47, state="scheduled" if own == "1" else "completed"
            )
            recorder.call("all_reduce", state="scheduled") if own == "2" else None
    for recorder in recorders:
        recorder.write(tmp_path, config=recorder.rank in (1, 3))
    report = analyze(tmp_path)
    assert culprits(report) == (2,), said(report)


def test_f20_descriptions_that_differ_between_ranks(tmp_path: Path) -> None:
    """AssertionError when one rank calls a group `undefined` and another `mesh_dp`; name and members decide."""
    recorders = stuck(4, culprit=2)
    for entry in recorders[1].entries:
        entry["process_group"] = ("0", "undefined")
    recorders[3].groups = {"0": ("world", range(4))}
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (2,)
    assert len(report.to_dict()["groups"]) == 1


def test_f20_one_name_for_several_groups(tmp_path: Path) -> None:
    """Sub-groups of one split share their name; their members tell them apart."""
    recorders = []
    for rank in range(4):
        members = (0, 1) if rank < 2 else (2, 3)
        recorder = Recorder(rank, {**world(4), "1": ("sub_pg", members)})
        recorder.call("all_reduce", times=3).call(
            "all_reduce", "1", sizes=[[3 + (rank > 1)]], times=4 + rank // 2
        )
        if rank != 3:
            recorder.call(
                "all_reduce", "1", sizes=[[3 + (rank > 1)]], state="completed" if rank < 2 else "scheduled"
            )
        if rank < 2:
            recorder.call("all_reduce", state="scheduled")
        recorders.append(recorder)
    report = analyze(write_all(recorders, tmp_path))
    assert culprits(report) == (3,), said(report)
    assert sorted(g["ranks"] for g in report.to_dict()["groups"] if g["name"] == "1") == [[0, 1], [2, 3]]


def circle(steps: int) -> list[Recorder]:
    """Return four ranks on a ring of four groups of two, of which each holds the group that its neighbour needs.

    In the `steps` before, every rank entered its lower group first; rank 0 still does.
    """
    groups = {**world(4), **{str(1 + i): ("pair", sorted((i, (i + 1) % 4))) for i in range(4)}}
    recorders = job(4, groups=groups)
    for recorder in recorders:
        pair = sorted((1 + (recorder.rank - 1) % 4, 1 + recorder.rank))
        recorder.call("all_reduce", line=49)
        for _ in range(steps):
            recorder.call("all_reduce", str(pair[0]), line=51).call("all_reduce", str(pair[1]), line=53).call(
                "all_reduce", line=55
            )
        recorder.call(
            "all_reduce", str(1 + recorder.rank), line=51 if recorder.rank == 0 else 53, state="scheduled"
        )
    return recorders


def test_f21_a_circle_over_four_groups_is_named(tmp_path: Path) -> None:
    """Four separate reports, each true, and no circle; without a history all members of the circle are named."""
    report = analyze(write_all(circle(steps=0), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "collective_order_mismatch", (0, 1, 2, 3)), said(report)
    assert verdict is not None and verdict.confidence != "high"  # no stack and no opposite orders show it
    for rank in range(4):
        assert f"rank {rank} is in all_reduce" in said(report)


def test_f21_the_ranks_that_left_the_usual_order_are_the_culprits(tmp_path: Path) -> None:
    """No culprit; with a history, those are named who broke it, and the one who kept it waits."""
    report = analyze(write_all(circle(steps=5), tmp_path))
    verdict = report.verdict
    assert blame(report) == ("hang", "collective_order_mismatch", (1, 2, 3)), said(report)
    assert verdict is not None and verdict.waiting_ranks == (0,)


def test_f22_a_skipped_step_is_told_though_it_shows_ten_steps_later(tmp_path: Path) -> None:
    """The right rank and no hint at the step that it skipped: equal calls still met, one step out of phase."""
    recorders = job(4)
    for recorder in recorders:
        for step in range(40):
            if recorder.rank == 1 and step == 29:
                continue
            recorder.call("all_reduce", sizes=[[256]], line=41)
            if step % 5 == 4:
                recorder.call("all_reduce", sizes=[[256]], line=47, function="log_metrics")
    # Rank 1 made one step (and the report of that step) less, so its peers wait for it in their last two calls.
    for recorder in recorders:
        if recorder.rank != 1:
            del recorder.entries[-1]
            recorder.reopen(-1)
    report = analyze(write_all(recorders, tmp_path))
    verdict = report.verdict
    assert culprits(report) == (1,), said(report)
    assert verdict is not None and verdict.cause in (
        "rank_conditional_collective",
        "uneven_loader",
        "gradient_sync_mismatch",
    )
    # 29 steps and 5 reports come before it; whether the step's first or second call is the missing one looks the same.
    assert re.search(
        r"skipped all_reduce and 1 more collective and continued .* blocked in all_reduce seq 47 .* 2 fewer collectives at seq 3[56]\b",
        said(report),
    ), said(report)
