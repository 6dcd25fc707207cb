"""Who waits for whom, on dumps whose answer follows from how they were written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from hangscope.align.waitgraph import Root, WaitGraph
from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all


def graph_of(recorders: list[Recorder], folder: Path) -> WaitGraph:
    analysis: Any = analyze(write_all(recorders, folder)).analysis
    graph: WaitGraph = analysis.case.graph
    return graph


def roots(graph: WaitGraph) -> list[Root]:
    return [root for root in graph.roots if root.explains]


def mesh(stops: int, folder: Path) -> WaitGraph:
    """Return the graph of a 2 x 2 mesh in which one rank stopped before its tensor-parallel call."""
    groups = {
        "0": ("default_pg", range(4)),
        "1": ("tp", [0, 1]),
        "2": ("tp", [2, 3]),
        "3": ("dp", [0, 2]),
        "4": ("dp", [1, 3]),
    }
    recorders = []
    for rank in range(4):
        tensor, data = ("1" if rank < 2 else "2"), ("3" if rank % 2 == 0 else "4")
        mine = {name: groups[name] for name in ("0", tensor, data)}
        recorder = Recorder(rank, mine)
        for _ in range(3):
            recorder.call("all_reduce", tensor).call("all_reduce", data)
        if rank != stops:
            other_half = rank // 2 != stops // 2
            recorder.call("all_reduce", tensor, state="completed" if other_half else "scheduled")
            if other_half:
                recorder.call("all_reduce", data, state="scheduled")
        recorders.append(recorder)
    return graph_of(recorders, folder)


@settings(max_examples=25)
@given(made=st.lists(st.integers(2, 6), min_size=2, max_size=6))
def test_all_waiting_ends_at_those_who_made_the_fewest_calls(made: list[int], tmp_path_factory: Any) -> None:
    """One group, one program: a rank that stopped earlier than another is waited for by it, and by all who came further."""
    group = {"0": ("default_pg", range(len(made)))}
    least = min(made)
    recorders = []
    for rank, calls in enumerate(made):
        recorder = Recorder(rank, group).call("all_reduce", times=least)
        if calls > least:
            recorder.call("all_reduce", state="scheduled")
        recorders.append(recorder)
    graph = graph_of(recorders, tmp_path_factory.mktemp("job"))
    behind = tuple(rank for rank, calls in enumerate(made) if calls == least)
    ahead = frozenset(rank for rank, calls in enumerate(made) if calls > least)
    assert graph.waiting == sorted(ahead)
    found = roots(graph)
    if not ahead:
        assert found == []
        return
    assert tuple(sorted(rank for root in found for rank in root.ranks)) == behind
    assert all(root.kind == "host" and root.explains == ahead and root.certain for root in found)


def test_with_two_dimensions_one_host_is_the_only_root(tmp_path: Path) -> None:
    """Its tensor-parallel peer waits for it, the others for the two of them over their data-parallel groups."""
    for culprit in range(4):
        (root,) = roots(mesh(culprit, tmp_path / str(culprit)))
        assert (root.kind, root.ranks) == ("host", (culprit,))
        assert root.explains == frozenset(range(4)) - {culprit}


def test_a_call_that_all_joined_is_a_root_of_its_own(tmp_path: Path) -> None:
    recorders = [
        Recorder(rank, {"0": ("default_pg", range(3))})
        .call("all_reduce", times=4)
        .call("all_gather", state="scheduled")
        for rank in range(3)
    ]
    (root,) = roots(graph_of(recorders, tmp_path))
    assert (root.kind, root.ranks, root.explains) == ("call", (0, 1, 2), frozenset({0, 1, 2}))


def test_opposite_orders_of_two_groups_are_a_circle(tmp_path: Path) -> None:
    groups = {"0": ("default_pg", range(2)), "1": ("a", [0, 1]), "2": ("b", [0, 1])}
    recorders = []
    for rank in range(2):
        recorder = Recorder(rank, groups).call("all_reduce", "1", times=3).call("all_reduce", "2", times=3)
        first, second = ("1", "2") if rank == 0 else ("2", "1")
        recorders.append(
            recorder.call("all_reduce", first, state="scheduled").call(
                "all_reduce", second, state="scheduled"
            )
        )
    graph = graph_of(recorders, tmp_path)
    assert graph.waiting == [0, 1]
    (root,) = roots(graph)
    assert root.kind == "cycle" and root.explains == frozenset({0, 1})


def test_an_open_call_that_the_ring_lost_stands_before_those_that_it_kept(tmp_path: Path) -> None:
    """Ranks 0 and 1 wait in a data-parallel call of which only the counters tell; behind it they have joined others alone."""
    groups = {
        "0": ("default_pg", range(4)), "1": ("tp", (0, 1)), "2": ("tp", (2, 3)), "3": ("dp", (0, 2)), "4": ("dp", (1, 3)),
    }  # fmt: skip
    recorders = [Recorder(rank, groups, ring=4) for rank in range(4)]
    for rank, recorder in enumerate(recorders):
        tp, dp = "2" if rank > 1 else "1", "4" if rank % 2 else "3"
        for _ in range(6):
            recorder.call("all_reduce", tp, line=41).call("reduce_scatter_tensor", dp, line=43)
        if rank < 2:
            recorder.call("reduce_scatter_tensor", dp, line=43, state="scheduled")
        if rank < 3:
            recorder.call("all_reduce", tp, line=41, state="scheduled", times=5 if rank < 2 else 1)
        recorder.ring = 5 if rank < 2 else 40
    write_all(recorders, tmp_path)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None and verdict.culprit_ranks == (3,) and verdict.cause == "stuck_rank"
