"""The roots of a freeze: what waits for nothing else in the wait-for graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from hangscope.align.components import components
from hangscope.align.nodes import Host, Node, PairInstance, Unnamed, Untold
from hangscope.align.waitgraph import Root, WaitGraph
from hangscope.incident import Incident


def find_roots(incident: Incident, graph: WaitGraph, idle: frozenset[int]) -> None:
    """Fill in the roots of a graph, those that explain most ranks first; `idle` as `waiting.build` has it."""
    parts = components(graph.edges)
    part_of = {node: i for i, part in enumerate(parts) for node in part}
    sources: list[list[int]] = [[] for _ in graph.nodes]
    for source, targets in enumerate(graph.edges):
        for target in targets:
            sources[target].append(source)
    waiting = frozenset(graph.waiting)
    reach: dict[tuple[int, ...], frozenset[int]] = {}
    for number, part in enumerate(parts):
        leaves = any(part_of[target] != number for node in part for target in graph.edges[node])
        if leaves or isinstance(graph.nodes[part[0]], Untold | Unnamed):
            continue
        # Many that were not seen are waited for by the same calls.
        before = tuple(sorted({source for node in part for source in sources[node]}.difference(part)))
        if before not in reach:
            reach[before] = waiting.intersection(_hosts(graph, _reaching(before, sources)))
        own = waiting.intersection(_hosts(graph, part))
        graph.roots.append(_root(incident, graph, part, reach[before] | own if own else reach[before], idle))
    graph.roots.sort(key=lambda r: (-len(r.explains), r.kind, r.ranks, str(r.nodes)))


def _reaching(part: Iterable[int], sources: list[list[int]]) -> set[int]:
    """Return the nodes from which any of these can be reached."""
    seen = set(part)
    work = list(seen)
    while work:
        new = set(sources[work.pop()]) - seen
        seen |= new
        work += new
    return seen


def _hosts(graph: WaitGraph, places: Iterable[int]) -> Iterator[int]:
    """Yield the ranks of the host nodes among the nodes at these places."""
    return (node.rank for node in map(graph.nodes.__getitem__, places) if isinstance(node, Host))


def _root(
    incident: Incident, graph: WaitGraph, part: list[int], explains: frozenset[int], idle: frozenset[int]
) -> Root:
    nodes, hosts = tuple(graph.nodes[n] for n in part), tuple(sorted(_hosts(graph, part)))
    inside = set(part)
    certain = not any(assumed for n in part for t, assumed in graph.edges[n].items() if t in inside)
    if hosts and len(nodes) == 1:
        record = incident.ranks[hosts[0]]
        whole = record.seen and hosts[0] not in graph.early and not any(q.cut for q in record.queues.values())
        kind = "host" if whole or hosts[0] in idle else "unseen"
        return Root(kind, nodes, hosts, explains - set(hosts), certain)
    if len(nodes) == 1 or all(isinstance(node, PairInstance) for node in nodes):
        # One call, one batch, or batches that meet each other, with every half there: a call that all joined.
        members = tuple(sorted({rank for node in nodes for rank, _ in graph.calls_of(node)}))
        return Root("cycle" if _face_each_other(graph, nodes) else "call", nodes, members, explains, certain)
    return Root("cycle", nodes, hosts, explains, certain)


def _face_each_other(graph: WaitGraph, nodes: Sequence[Node]) -> bool:
    """Return whether two ranks wait in calls to each other that each posted in an order of its own: both sent first, say.

    What one pair exchanges goes through one communicator, and in order; calls of other pairs overtake each other.
    """
    pairs = {frozenset((n.source, n.destination)) for n in nodes if isinstance(n, PairInstance)}
    posted = {(rank, call.batch) for node in nodes for rank, call in graph.calls_of(node)}
    batches = Counter(rank for rank, _ in posted)
    return len(pairs) == 1 and sum(number > 1 for number in batches.values()) > 1
