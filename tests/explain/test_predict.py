"""Who still waits when some ranks are imagined to do what is expected of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hangscope.align.waitgraph import Host, Instance, OpenCall, Root, Unnamed, Untold, WaitGraph
from hangscope.explain.predict import Replay

#: per rank the group of each of its open calls, in its own order; groups hold all ranks
Queues = dict[int, list[int]]


def graph_of(queues: Queues, size: int, partial: frozenset[int] = frozenset()) -> WaitGraph:
    """Return the graph of ranks that each wait in the first call (seq 1) of some groups; who has not made one is absent."""
    graph = WaitGraph()
    callers: dict[Instance, set[int]] = {}
    for rank, groups in queues.items():
        made = [Instance(gid, 1) for gid in groups]
        calls = [OpenCall(node, n, 0, node.gid, (node.gid, 1)) for n, node in enumerate(made)]
        graph.open_calls[rank] = calls
        for before, call, instance in zip([None, *calls], calls, made, strict=False):
            graph.edges.setdefault(call.node, {})
            callers.setdefault(instance, set()).add(rank)
            if before is None:
                graph.connect(Host(rank), call.node, True)
            else:
                graph.connect(call.node, before.node, before.gid != call.gid)
    for called, ranks in callers.items():
        for rank in set(range(size)) - ranks:
            graph.connect(called, Host(rank), False)
        if called.gid in partial:
            graph.connect(called, Unnamed(called.gid), True)
    for called, ranks in callers.items():
        if not graph.edges[called]:
            graph.roots.append(Root("call", (called,), tuple(sorted(ranks)), frozenset(ranks), True))
    return graph


def test_who_is_absent_frees_all_and_nobody_else_does() -> None:
    replay = Replay(graph_of({0: [7], 1: [7], 2: [7]}, 4))
    assert replay.stuck([3]) == frozenset()
    assert replay.stuck([0]) == {1, 2}


def test_opposite_orders_are_undone_by_either_side() -> None:
    replay = Replay(graph_of({0: [1, 2], 1: [2, 1]}, 2))
    assert replay.stuck([]) == {0, 1}
    assert replay.stuck([0]) == replay.stuck([1]) == frozenset()


def test_a_call_that_all_joined_stands_still_by_itself() -> None:
    assert Replay(graph_of({0: [1], 1: [1]}, 2)).stuck([]) == {0, 1}


def test_whose_call_no_line_names_speaks_against_no_explanation() -> None:
    graph = graph_of({0: [7], 1: [7]}, 3)
    graph.open_calls[4] = [OpenCall(Untold(4), 0, 0, -1, (-1, 4))]
    replay = Replay(graph)
    assert replay.stuck([2]) == frozenset() and replay.stuck([]) == {0, 1}


def test_members_that_no_line_names_are_not_taken_for_present() -> None:
    replay = Replay(graph_of({0: [1], 1: [1]}, 2, frozenset({1})))
    assert replay.stuck([]) == {0, 1}


queues = st.integers(2, 5).flatmap(
    lambda size: st.tuples(
        st.just(size),
        st.dictionaries(
            st.integers(0, size - 1),
            st.lists(st.integers(0, 3), min_size=1, max_size=3, unique=True),
            min_size=1,
        ),
    )
)


@given(queues, st.sets(st.integers(0, 4)), st.sets(st.integers(0, 4)))
def test_undoing_more_never_leaves_more_stuck(job: tuple[int, Queues], few: set[int], more: set[int]) -> None:
    size, calls = job
    replay = Replay(graph_of(calls, size))
    assert replay.stuck(few | more) <= replay.stuck(few) - few


@given(queues)
def test_nobody_is_stuck_where_all_do_what_is_expected(job: tuple[int, Queues]) -> None:
    size, calls = job
    assert not Replay(graph_of(calls, size)).stuck(range(size))
