"""The roots of a freeze: what waits for nothing else in the wait-for graph."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hangscope.align.components import components
from hangscope.align.nodes import Host, Node, PairInstance, Unnamed, Untold
from hangscope.align.waitgraph import Root, WaitGraph
from hangscope.incident import Incident


def find_roots(incident: Incident, graph: WaitGraph, idle: frozenset[int]) -> None:
    """Fill in the roots of a graph, those that explain most ranks first; `idle` as `waiting.build` has it."""
    parts = components(graph.edges)
    part_of = {node: i for i, part in enumerate(parts) for node in part}
    reversed_edges: list[list[int]] = [[] for _ in graph.nodes]
    for source, targets in enumerate(graph.edges):
        for target, _ in targets:
            reversed_edges[target].append(source)
    waiting = frozenset(graph.waiting)
    reach: dict[tuple[int, ...], frozenset[int]] = {}
    for number, part in enumerate(parts):
        if any(part_of[t] != number for n in part for t, _ in graph.edges[n]):
            continue
        if isinstance(graph.nodes[part[0]], Untold | Unnamed):
            continue
        # Many that were not seen are waited for by the same calls.
        inside = set(part)
        before = tuple(sorted({source for node in part for source in reversed_edges[node]} - inside))
        if before not in reach:
            reach[before] = _reaching(before, reversed_edges, graph, waiting)
        own = waiting.intersection(_hosts(graph, part))
        graph.roots.append(_root(incident, graph, part, reach[before] | own if own else reach[before], idle))
    graph.roots.sort(key=lambda r: (-len(r.explains), r.kind, r.ranks, str(r.nodes)))


def _reaching(
    part: Iterable[int], reversed_edges: list[list[int]], graph: WaitGraph, waiting: frozenset[int]
) -> frozenset[int]:
    seen = set(part)
    work = list(seen)
    while work:
        for source in reversed_edges[work.pop()]:
            if source not in seen:
                seen.add(source)
                work.append(source)
    return waiting.intersection(_hosts(graph, seen))


def _hosts(graph: WaitGraph, places: Iterable[int]) -> Iterator[int]:
    """Yield the ranks of the host nodes among the nodes at these places."""
    return (node.rank for node in map(graph.nodes.__getitem__, places) if isinstance(node, Host))


def _root(
    incident: Incident,
    graph: WaitGraph,
    part: list[int],
    explains: frozenset[int],
    idle: frozenset[int],
) -> Root:
    nodes = tuple(graph.nodes[n] for n in part)
    hosts = tuple(sorted(_hosts(graph, part)))
    inside = set(part)
    certain = not any(assumed for n in part for t, assumed in graph.edges[n] if t in inside)
    if len(nodes) > 1 and not hosts and all(isinstance(n, PairInstance) for n in nodes):
        # One batch, or batches that meet each other, with every half there: a call that all joined.
        members = tuple(
            r for r, calls in sorted(graph.open_calls.items()) if any(c.node in nodes for c in calls)
        )
        return Root("cycle" if _face_each_other(graph, nodes) else "call", nodes, members, explains, True)
    if len(nodes) > 1:
        return Root("cycle", nodes, hosts, explains, certain)
    if hosts:
        record = incident.ranks[hosts[0]]
        known = hosts[0] in idle or (
            record.seen
            and hosts[0] not in graph.early
            and not any(queue.cut for queue in record.queues.values())
        )
        return Root("host" if known else "unseen", nodes, hosts, explains - set(hosts), True)
    open_on = tuple(dict.fromkeys(rank for rank, _ in graph.calls_of(nodes[0])))
    return Root("call", nodes, open_on, explains, True)


def _face_each_other(graph: WaitGraph, nodes: Sequence[Node]) -> bool:
    """Return whether two ranks wait in calls to each other that each posted in an order of its own: both sent first, say.

    What one pair exchanges goes through one communicator, and in order; calls of other pairs overtake each other.
    """
    pairs = {frozenset((n.source, n.destination)) for n in nodes if isinstance(n, PairInstance)}
    posted = [{c.batch for c in calls if c.node in nodes} for calls in graph.open_calls.values()]
    return len(pairs) == 1 and sum(len(batches) > 1 for batches in posted) > 1
