"""The roots of a freeze: what waits for nothing else in the wait-for graph."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Host, Node, Root, Unnamed, Untold, WaitGraph
from hangscope.model.incident import Incident


def find_roots(incident: Incident, graph: WaitGraph, idle: frozenset[int]) -> None:
    """Fill in the roots of a graph, those that explain most ranks first; `idle` as `waiting.build` has it."""
    nodes = list(graph.edges)
    place = {node: i for i, node in enumerate(nodes)}
    edges = [[place[target] for target in targets] for targets in graph.edges.values()]
    sources: list[list[int]] = [[] for _ in nodes]
    for source, targets in enumerate(edges):
        for target in targets:
            sources[target].append(source)
    waiting = frozenset(graph.waiting)
    reach: dict[tuple[int, ...], frozenset[int]] = {}
    for part in components(edges):
        inside = set(part)
        if any(not inside.issuperset(edges[n]) for n in part) or isinstance(nodes[part[0]], Untold | Unnamed):
            continue
        # Many that were not seen are waited for by the same calls.
        before = tuple(sorted({source for n in part for source in sources[n]} - inside))
        if before not in reach:
            reach[before] = waiting.intersection(_hosts(nodes[n] for n in _reaching(before, sources)))
        own = waiting.intersection(_hosts(nodes[n] for n in part))
        explains = reach[before] | own if own else reach[before]
        inner = tuple(nodes[n] for n in part)
        kind, ranks = _kind(incident, graph, inner, idle)
        certain = not any(assumed for node in inner for assumed in graph.edges[node].values())
        graph.roots.append(Root(kind, inner, tuple(sorted(ranks)), explains, certain))
    graph.roots.sort(key=lambda r: (-len(r.explains), r.kind, r.ranks, str(r.nodes)))


def components(edges: Sequence[Collection[int]]) -> list[list[int]]:
    """Return the strongly connected components, each after the components that it reaches (Tarjan, iterative, linear).

    `edges[i]` holds the targets of node i.
    """
    count = len(edges)
    number, lowest = [-1] * count, [0] * count  # of a node whose component is known, `lowest` is `count`
    stack: list[int] = []
    result: list[list[int]] = []
    found = 0
    for start in range(count):
        work = [(start, iter(edges[start]))] if number[start] < 0 else []
        while work:
            node, targets = work[-1]
            if number[node] < 0:
                number[node] = lowest[node] = found
                found += 1
                stack.append(node)
            for target in targets:
                if number[target] < 0:
                    work.append((target, iter(edges[target])))
                    break
                lowest[node] = min(lowest[node], lowest[target])
            else:
                work.pop()
                if lowest[node] == number[node]:
                    part: list[int] = []
                    while node not in part[-1:]:
                        part.append(stack.pop())
                        lowest[part[-1]] = count
                    result.append(sorted(part))
                if work:
                    parent = work[-1][0]
                    lowest[parent] = min(lowest[parent], lowest[node])
    return result


def _reaching(part: Iterable[int], sources: list[list[int]]) -> set[int]:
    """Return the nodes from which any of these can be reached."""
    seen = set(part)
    work = list(seen)
    while work:
        new = set(sources[work.pop()]) - seen
        seen |= new
        work += new
    return seen


def _hosts(nodes: Iterable[Node]) -> Iterator[int]:
    """Yield the ranks of the hosts among these nodes."""
    return (node.rank for node in nodes if isinstance(node, Host))


def _kind(
    incident: Incident, graph: WaitGraph, nodes: tuple[Node, ...], idle: frozenset[int]
) -> tuple[str, set[int]]:
    """Return the kind of a root and its ranks, as `Root` has them."""
    hosts = set(_hosts(nodes))
    if hosts and len(nodes) == 1:
        (rank,) = hosts
        record = incident.ranks[rank]
        whole = record.seen and rank not in graph.early and not any(q.cut for q in record.queues.values())
        return "host" if whole or rank in idle else "unseen", hosts
    if len(nodes) > 1 and not all(isinstance(node, PairInstance) for node in nodes):
        return "cycle", hosts
    # One call, one batch, or batches that meet each other, with every half there: a call that all joined.
    members = {rank for node in nodes for rank, _ in graph.calls_of(node)}
    return "cycle" if _face_each_other(graph, nodes) else "call", members


def _face_each_other(graph: WaitGraph, nodes: Sequence[Node]) -> bool:
    """Return whether two ranks wait in calls to each other that each posted in an order of its own: both sent first, say.

    What one pair exchanges goes through one communicator, and in order; calls of other pairs overtake each other.
    """
    pairs = {frozenset((n.source, n.destination)) for n in nodes if isinstance(n, PairInstance)}
    posted = {(rank, call.batch) for node in nodes for rank, call in graph.calls_of(node)}
    batches = Counter(rank for rank, _ in posted)
    return len(pairs) == 1 and sum(number > 1 for number in batches.values()) > 1
