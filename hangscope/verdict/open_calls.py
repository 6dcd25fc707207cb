"""Which call the blocked ranks are in, where they have left the one that shows the fault or have not come to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.frontier import GroupFrontier
from hangscope.align.waitgraph import Host, Instance
from hangscope.causes.case import Case
from hangscope.explain.finding import StuckCall


def still_open(case: Case, views: Sequence[GroupFrontier]) -> StuckCall:
    """Return the call at which the programs part, where ranks are blocked in it before any other.

    Where all of its group have left it, the first that is open on the group, and where it is queued behind others, the one in which most
    ranks wait, of those that wait for the culprits themselves first.
    """
    stuck, graph, culprits = case.finding.stuck, case.graph, case.finding.culprits
    firsts = {r: calls[0].node for r, calls in graph.open_calls.items() if r not in culprits}
    in_it = stuck.node in graph.edges
    if (
        stuck.view is None
        or stuck.pair is not None
        or (in_it and (stuck.node in firsts.values() or not firsts))
    ):
        return stuck
    gid = stuck.view.group.gid
    opened = sorted(node.seq for node in graph.edges if isinstance(node, Instance) and node.gid == gid)
    inside = [r for r, _ in graph.calls_of(Instance(gid, opened[0]))] if opened and not in_it else []
    rank = next((r for r in inside if r not in culprits), None)
    if rank is not None:
        return replace(stuck, seq=opened[0], rank=rank, kind=stuck.view.kind_of(rank, opened[0]))
    hosts = {Host(r) for r in culprits}
    numbers = Counter(node for node in firsts.values() if isinstance(node, Instance))
    if (opened and not in_it) or not numbers:
        return stuck
    node = max(numbers, key=lambda one: (not hosts.isdisjoint(graph.edges.get(one, ())), numbers[one]))
    return _at(node, next(r for r, one in firsts.items() if one == node), views)


def next_open(
    case: Case, stuck: StuckCall, ranks: Sequence[int], views: Sequence[GroupFrontier]
) -> StuckCall:
    """Return the collective in which ranks are that have left the stuck one."""
    node = next((calls[0].node for r in ranks[:1] if (calls := case.graph.open_calls.get(r))), None)
    return _at(node, ranks[0], views) if isinstance(node, Instance) else stuck


def _at(node: Instance, rank: int, views: Sequence[GroupFrontier]) -> StuckCall:
    """Return a collective as one that a rank is in."""
    view = next(v for v in views if v.group.gid == node.gid)
    return StuckCall(view, node.seq, rank, view.kind_of(rank, node.seq))
