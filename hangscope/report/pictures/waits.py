"""Who waits for whom, as the report draws it: the wait-for graph with the verdict's root, condensed to nodes of equal standing.

The root is what the headline says it is: the named ranks as a node of their own, although a rank that made another call is
*in* the call that the others wait in; without a named rank the call, or the circle, in which all waiting ends. Hosts and
calls fold where they wait for the same and are waited for alike, whatever group it is.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from hangscope.align.components import components
from hangscope.align.nodes import Called, Host, Instance, Node, PairInstance, Unnamed, Untold
from hangscope.align.rankset import compress
from hangscope.report.pictures.wait_words import sentences
from hangscope.report.schema.pictures import WaitEdge, WaitNode, WaitPicture
from hangscope.report.subject import Subject
from hangscope.report.words import counted, some_ranks

NODES = 30


@dataclass(frozen=True, slots=True)
class VerdictCall:
    """The call of a verdict that text alone tells."""


Drawn = Node | VerdictCall
Edges = dict[Drawn, dict[Drawn, bool]]  # who waits for what, and whether that is assumed


def wait_graph(subject: Subject) -> tuple[Edges, frozenset[Drawn]]:
    """Return who waits for what, and the roots; empty where nobody is seen to wait."""
    edges = _edges(subject) or _told_edges(subject)
    verdict = subject.verdict
    if edges and verdict is not None and verdict.explained >= len(verdict.waiting_ranks):
        for rank in verdict.waiting_ranks:  # of some only text tells that they wait, and not where
            edges.setdefault(Host(rank), {})
    roots = _roots(subject, edges) if edges else frozenset()
    _lead_to_the_root(subject, edges, roots)
    return edges, roots


def steps_to_root(edges: Edges, roots: frozenset[Drawn]) -> dict[Drawn, Drawn]:
    """Return for each node that leads to a root the next node on a shortest way there."""
    back: dict[Drawn, list[Drawn]] = defaultdict(list)
    for node, targets in edges.items():
        for target in targets:
            back[target].append(node)
    step: dict[Drawn, Drawn] = {}
    work = sorted(roots, key=str)
    for node in work:  # grows as it is walked: breadth first
        for before in back[node]:
            if before not in step and before not in roots:
                step[before] = node
                work.append(before)
    return step


def wait_picture(subject: Subject, edges: Edges, roots: frozenset[Drawn]) -> WaitPicture | None:
    """Return the picture, or None where nobody is seen to wait."""
    if not edges:
        return None
    cycle = _on_a_cycle(edges)
    classes = _condense(subject, edges, roots)
    order = sorted(
        set(classes.values()),
        key=lambda number: (
            not any(classes[n] == number and n in roots for n in edges),
            -sum(1 for n in edges if classes[n] == number),
            number,
        ),
    )
    members: dict[int, list[Drawn]] = defaultdict(list)
    for node in edges:
        members[classes[node]].append(node)
    names = {number: f"n{i}" for i, number in enumerate(order[:NODES])}
    nodes = tuple(_node(subject, names[number], members[number], roots, cycle) for number in order[:NODES])
    drawn: dict[tuple[str, str], bool] = {}
    for node, targets in edges.items():
        for target, assumed in targets.items():
            ends = (names.get(classes[node], ""), names.get(classes[target], ""))
            if all(ends) and ends[0] != ends[1]:
                drawn[ends] = drawn.get(ends, True) and assumed
    arrows = tuple(WaitEdge(a, b, assumed) for (a, b), assumed in sorted(drawn.items()))
    return WaitPicture(
        nodes,
        arrows,
        sentences(subject, nodes, arrows, _awaited(edges, classes, names)),
        max(0, len(order) - NODES),
    )


def _edges(subject: Subject) -> Edges:
    """Return what the graph says: of each rank's open calls the first, and what that waits for."""
    graph = subject.graph
    calls: dict[Node, bool] = {}
    edges: Edges = {}
    # Where text names no call of any rank, the verdict itself is drawn.
    any_told = any(
        not isinstance(call.node, Untold) for found in graph.open_calls.values() for call in found[:1]
    )
    for rank in graph.waiting:
        first = subject.first_open(rank)
        host = Host(rank)
        if first is None or (isinstance(first.node, Untold) and not any_told):
            continue
        assumed = (
            next((a for t, a in graph.targets(host) if t == first.node), True)
            if host in graph.index
            else True
        )
        edges[host] = {first.node: assumed}
        calls[first.node] = True
    for root in graph.roots:
        calls.update((n, True) for n in root.nodes if not isinstance(n, Host))
    for node in calls:
        edges[node] = _through(subject, node, calls)
    for targets in list(edges.values()):
        for target in targets:
            edges.setdefault(target, {})
    circular = any(root.kind == "cycle" and subject.culprits & set(root.ranks) for root in graph.roots)
    if not circular:
        for rank in subject.culprits:  # the headline's root waits for nobody
            if Host(rank) in edges or subject.node is not None:
                edges[Host(rank)] = {}
    if subject.node is not None and subject.node in edges:
        for rank in sorted(subject.culprits):
            inside = any(r == rank for r, _ in graph.calls_of(subject.node))
            if inside and not circular:
                edges[subject.node][Host(rank)] = False
    return edges


def _through(subject: Subject, node: Node, kept: dict[Node, bool]) -> dict[Drawn, bool]:
    """Return the hosts and kept calls that a call waits for, straight or behind calls that are not kept."""
    found: dict[Drawn, bool] = {}
    seen = {node}
    work = [(node, False)]
    while work:
        at, assumed = work.pop()
        for target, step in subject.graph.targets(at):
            if isinstance(target, Host | Untold | Unnamed) or target in kept:
                if target != node:
                    found[target] = found.get(target, True) and (assumed or step)
            elif target not in seen:
                seen.add(target)
                work.append((target, assumed or step))
    return found


def _told_edges(subject: Subject) -> Edges:
    """Return the verdict as a graph, where only text tells who waits."""
    verdict = subject.verdict
    if verdict is None or not verdict.waiting_ranks:
        return {}
    call = VerdictCall()
    edges: Edges = {Host(rank): {call: False} for rank in verdict.waiting_ranks}
    edges[call] = {Host(rank): False for rank in verdict.culprit_ranks}
    edges.update({Host(rank): {} for rank in verdict.culprit_ranks})
    return edges


def _roots(subject: Subject, edges: Edges) -> frozenset[Drawn]:
    named = frozenset(n for n in edges if isinstance(n, Host) and n.rank in subject.culprits)
    if named:
        return named
    if subject.culprits:
        edges.update({Host(rank): {} for rank in subject.culprits})
        return frozenset(Host(rank) for rank in subject.culprits)
    cycles = [root for root in subject.graph.roots if root.kind == "cycle"]
    if subject.node is not None and subject.node in edges:
        around = next((root.nodes for root in cycles if subject.node in root.nodes), None)
        return frozenset(around or (subject.node,))
    found = frozenset(n for root in subject.graph.roots for n in root.nodes if n in edges)
    sinks = frozenset(n for n in edges if not edges[n])
    return found or frozenset(n for n in sinks if not isinstance(n, Host)) or sinks


def _lead_to_the_root(subject: Subject, edges: Edges, roots: frozenset[Drawn]) -> None:
    """Let every chain end at the root where the verdict says that it explains all; such steps are assumed."""
    verdict = subject.verdict
    if verdict is None or not roots or verdict.explained < len(verdict.waiting_ranks):
        return
    reached = _reaching(edges, roots)
    lost = [node for node in edges if node not in reached]
    ends = [node for node in lost if not any(target in lost for target in edges[node])] or lost[:1]
    target = min(roots, key=str)
    for node in ends:
        edges[node][target] = True
    reached = _reaching(edges, roots) if ends else reached
    for node in [n for n in edges if ends and n not in reached and not isinstance(n, Host)]:
        edges[node][target] = True  # circles among those that wait


def _reaching(edges: Edges, roots: frozenset[Drawn]) -> set[Drawn]:
    return set(steps_to_root(edges, roots)) | set(roots)


def _on_a_cycle(edges: Edges) -> frozenset[Drawn]:
    names = list(edges)
    index = {node: i for i, node in enumerate(names)}
    parts = components([[(index[t], a) for t, a in edges[node].items()] for node in names])
    return frozenset(names[i] for part in parts if len(part) > 1 for i in part)


def _condense(subject: Subject, edges: Edges, roots: frozenset[Drawn]) -> dict[Drawn, int]:
    """Return a class for each node: nodes of one class look alike and wait for the same classes (partition refinement)."""
    colours: dict[Drawn, object] = {}
    callers: dict[Drawn, set[Drawn]] = defaultdict(set)
    for node, targets in edges.items():
        for target in targets:
            callers[target].add(node)
        if isinstance(node, Host):
            colours[node] = ("host", node in roots, node.rank in subject.culprits, not targets)
        elif not isinstance(node, Called):
            colours[node] = (type(node).__name__,)
        else:
            group = subject.incident.groups[node.gid]
            purpose = (group.role or group.desc or group.name, len(group.ranks))
            own = str(node) if node in roots or node == subject.node or isinstance(node, PairInstance) else ""
            colours[node] = (subject.call_name(node), *purpose, node in roots, own)
    numbers = _numbered(colours)
    for _ in range(len(edges)):
        refined = _numbered(
            {
                node: (numbers[node], tuple(sorted({(numbers[t], a) for t, a in edges[node].items()})))
                for node in edges
            }
        )
        if len(set(refined.values())) == len(set(numbers.values())):
            break
        numbers = refined
    return numbers


def _numbered(colours: dict[Drawn, object]) -> dict[Drawn, int]:
    index: dict[object, int] = {}
    return {node: index.setdefault(colour, len(index)) for node, colour in colours.items()}


def _node(
    subject: Subject, name: str, members: list[Drawn], roots: frozenset[Drawn], cycle: frozenset[Drawn]
) -> WaitNode:
    root, bold = any(n in roots for n in members), any(n in cycle for n in members)
    first = members[0]
    if isinstance(first, Host):
        ranks = sorted(n.rank for n in members if isinstance(n, Host))
        culprit = bool(subject.culprits.intersection(ranks))
        role = (
            ""
            if culprit
            else {"waiting": "", "idle": "in no call", "unseen": "not seen"}[subject.role(ranks[0])]
        )
        return WaitNode(
            name,
            "host",
            f"{'Rank' if len(ranks) == 1 else 'Ranks'} {some_ranks(ranks)}",
            role,
            compress(ranks),
            len(ranks),
            root,
            bold,
            culprit,
        )
    if isinstance(first, VerdictCall):
        verdict = subject.verdict
        assert verdict is not None
        label = f"{verdict.op or 'a call'}{f' seq {verdict.seq}' if verdict.seq is not None else ''}"
        group = f"group {verdict.group.label}" if verdict.group is not None else ""
        inside = sorted(verdict.waiting_ranks)
        return WaitNode(name, "call", label, group, compress(inside), len(inside), root, bold)
    if isinstance(first, Untold | Unnamed):
        inside = sorted(_callers(subject, members) - subject.culprits)
        told = compress(inside) if inside else ""
        return WaitNode(name, "call", subject.call_name(first), "", told, len(inside), root, bold)
    calls = [n for n in members if isinstance(n, Called)]
    gids = sorted({n.gid for n in calls})
    lowest = subject.incident.groups[gids[0]]
    group = (
        f"group {lowest.label}"
        if len(gids) == 1
        else f"{counted(len(gids), 'group')}, {lowest.role or lowest.desc or lowest.name} and others"
    )
    if (
        len(gids) > 1
        and len({subject.incident.groups[g].role or subject.incident.groups[g].desc for g in gids}) == 1
    ):
        group = f"{counted(len(gids), 'group')} ({lowest.role or lowest.desc or 'alike'})"
    # A named rank that made another call there is a node of its own, and no part of this one; in a circle it is both.
    left_out = subject.culprits if not bold else frozenset()
    inside = sorted(_callers(subject, members) - left_out)
    return WaitNode(
        name,
        "call",
        subject.call_name(first),
        group,
        compress(inside) if inside else "",
        len(inside),
        root,
        bold,
        call=f"{lowest.label}/{first.seq}" if len(members) == 1 and isinstance(first, Instance) else "",
    )


def _callers(subject: Subject, nodes: Iterable[Drawn]) -> set[int]:
    """Return the ranks that are in any of these calls."""
    calls = (n for n in nodes if not isinstance(n, VerdictCall))
    return {rank for node in calls for rank, _ in subject.graph.calls_of(node)}


def _awaited(edges: Edges, classes: dict[Drawn, int], names: dict[int, str]) -> dict[str, list[int]]:
    """Return the ranks that the calls of each node wait for."""
    found: dict[str, set[int]] = defaultdict(set)
    for node, targets in edges.items():
        if not isinstance(node, Host) and classes[node] in names:
            found[names[classes[node]]].update(t.rank for t in targets if isinstance(t, Host))
    return {name: sorted(ranks) for name, ranks in found.items()}
