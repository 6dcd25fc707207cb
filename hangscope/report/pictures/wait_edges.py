"""Who waits for whom: the analysis's wait-for graph with the verdict's root.

The root is what the headline says it is: the named ranks as a node of their own, although a rank that issued another collective is *in* the one that the others wait in; without a named rank, the collective or the cycle in which all waiting ends.
"""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from typing import TypeVar

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Host, Node
from hangscope.model.dataclass import dataclass
from hangscope.report.subject import Subject
from hangscope.report.words import grouped

N = TypeVar("N", bound=Hashable)


@dataclass(frozen=True, slots=True)
class VerdictCall:
    """The collective of a verdict that only logs show."""


Drawn = Node | VerdictCall
Edges = dict[Drawn, dict[Drawn, bool]]  # who waits for what, and whether that is assumed


def wait_graph(subject: Subject) -> tuple[Edges, frozenset[Drawn]]:
    """Return who waits for what, and the roots; empty where nobody is seen to wait."""
    edges = _edges(subject) or _logged_edges(subject)
    verdict = subject.verdict
    if edges and verdict.explained >= len(verdict.waiting_ranks):
        for rank in verdict.waiting_ranks:  # of some only text tells that they wait, and not where
            edges.setdefault(Host(rank), {})
    roots = _roots(subject, edges) if edges else frozenset()
    _lead_to_the_root(subject, edges, roots)
    return edges, roots


def steps_to_root(edges: Edges, roots: frozenset[Drawn]) -> dict[Drawn, Drawn]:
    """Return for each node that leads to a root the next node on a shortest way there."""
    pairs = [(node, target) for node, targets in edges.items() for target in targets]
    return steps_to(sorted(roots, key=str), pairs)


def steps_to(ends: Iterable[N], edges: Iterable[tuple[N, N]]) -> dict[N, N]:
    """Return the next node on a shortest path to one of these nodes, for each node from which a path leads there."""
    back = grouped((target, node) for node, target in edges)
    step: dict[N, N] = {}
    work = list(ends)
    known = set(work)
    for node in work:  # grows as it is walked: breadth first
        for before in back.get(node, ()):
            if before not in known:
                known.add(before)
                step[before] = node
                work.append(before)
    return step


def _edges(subject: Subject) -> Edges:
    """Return what the graph says: of each rank's open calls the first, and what that waits for."""
    graph = subject.graph
    calls: dict[Node, None] = {}
    edges: Edges = {}
    for rank, opened in sorted(graph.open_calls.items()):
        edges[Host(rank)] = {opened[0].node: False}
        calls[opened[0].node] = None
    calls |= dict.fromkeys(n for root in graph.roots for n in root.nodes if not isinstance(n, Host))
    for node in calls:
        edges[node] = _awaited(subject, node, calls)
    circular = any(root.kind == "cycle" and subject.culprits & set(root.ranks) for root in graph.roots)
    if not circular:
        for rank in subject.culprits:  # the headline's root waits for nobody
            edges.pop(Host(rank), None)
        _leave_out_own(subject, edges)
    for targets in list(edges.values()):
        for target in targets:
            if isinstance(target, Host) and not subject.incident.ranks[target.rank].seen:
                targets[target] = True  # it may be in the call
            edges.setdefault(target, {})
    if not circular and edges and subject.node is not None:
        edges |= {host: {} for rank in subject.culprits if (host := Host(rank)) not in edges}
    return edges


def _leave_out_own(subject: Subject, edges: Edges) -> None:
    """Take out the calls that only named ranks are in: nobody waits there for the root. Who is behind one waits for those ranks.

    A named rank keeps what it has queued behind its own call.
    """
    calls = [node for node in edges if not isinstance(node, Host | VerdictCall)]
    callers = {node: {rank for rank, _ in subject.graph.calls_of(node)} for node in calls}
    inside = {call: [Host(rank) for rank in sorted(callers[call] & subject.culprits)] for call in calls}
    own = {call for call in calls if callers[call] and callers[call] <= subject.culprits}
    for call in own:
        del edges[call]
    for call in inside.keys() - own:
        targets = edges[call]
        for target in own.intersection(targets):
            behind = targets.pop(target)
            targets.update({host: behind and targets.get(host, True) for host in inside[target]})
        targets.update(dict.fromkeys(inside[call], call != subject.node))


def _awaited(subject: Subject, node: Node, kept: Container[Node]) -> dict[Drawn, bool]:
    """Return the CPU threads and kept collectives that a collective waits for itself, and what its ranks are in that have it queued."""
    graph, found = subject.graph, dict[Drawn, bool]()
    for rank, call in graph.calls_of(node):
        first = graph.open_calls[rank][0]
        # A batch ends as a whole.
        for one in (c.node for c in graph.open_calls[rank] if c.batch == call.batch):
            others = (t for t in graph.edges[one].items() if isinstance(t[0], Host) or t[0] in kept)
            found |= {target: found.get(target, True) and assumed for target, assumed in others}
        if first.batch != call.batch:
            found[first.node] = found.get(first.node, True) and first.gid != call.gid
    found.pop(node, None)
    return found


def _logged_edges(subject: Subject) -> Edges:
    verdict = subject.verdict
    if not verdict.waiting_ranks or not (verdict.op or verdict.culprit_ranks):
        return {}
    call, named = VerdictCall(), [Host(rank) for rank in verdict.culprit_ranks]
    edges: Edges = {Host(rank): {call: not verdict.op} for rank in verdict.waiting_ranks}
    return {**edges, call: dict.fromkeys(named, True), **{host: {} for host in named}}


def _roots(subject: Subject, edges: Edges) -> frozenset[Drawn]:
    if subject.culprits:
        named: frozenset[Drawn] = frozenset(map(Host, subject.culprits))
        if named.isdisjoint(edges):
            edges.update({host: {} for host in named})
        return named.intersection(edges)
    cycles = [root for root in subject.graph.roots if root.kind == "cycle"]
    if subject.node is not None and subject.node in edges:
        around = next((root.nodes for root in cycles if subject.node in root.nodes), None)
        # The pairs that both sides posted are one root: what stalls between two hosts stalls all of them.
        met = (root.nodes for root in subject.graph.roots if root.kind == "call" and len(root.nodes) == 1)
        alike = [nodes[0] for nodes in met if isinstance(nodes[0], PairInstance) and nodes[0] in edges]
        return frozenset(around or (alike if subject.node in alike else (subject.node,)))
    found = _seen(subject, (n for root in subject.graph.roots for n in root.nodes if n in edges))
    sinks = _seen(subject, (n for n in edges if not edges[n]))
    return found or frozenset(n for n in sinks if not isinstance(n, Host)) or sinks


def _seen(subject: Subject, nodes: Iterable[Drawn]) -> frozenset[Drawn]:
    """Return the nodes without the ranks that were not seen: of none of them it is known that the others wait for it."""
    return frozenset(n for n in nodes if not isinstance(n, Host) or subject.role(n.rank) != "unseen")


def _lead_to_the_root(subject: Subject, edges: Edges, roots: frozenset[Drawn]) -> None:
    """Let every chain end at the root where the verdict says that it explains all; such steps are assumed."""
    verdict = subject.verdict
    if not verdict.cause or not roots or verdict.explained < len(verdict.waiting_ranks):
        return
    target = min(roots, key=str)

    def lost() -> list[Drawn]:
        reached = steps_to_root(edges, roots).keys() | roots
        return [node for node in edges if node not in reached]

    before = lost()
    for node in [n for n in before if not any(there in before for there in edges[n])] or before[:1]:
        edges[node][target] = True
    for node in lost():
        if not isinstance(node, Host):
            edges[node][target] = True  # circles among those that wait
