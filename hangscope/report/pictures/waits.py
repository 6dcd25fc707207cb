"""The wait-for graph as it is drawn, and as sentences: hosts and calls fold where they wait for the same and are waited for alike, whatever group it is."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Called, Host, Instance
from hangscope.align.waiting import components
from hangscope.model.conclusion import CallRef
from hangscope.model.incident import on_group
from hangscope.model.rankset import agree, compress, counted, in_words, ranks_phrase
from hangscope.report.pictures.wait_edges import Drawn, Edges, VerdictCall
from hangscope.report.schema.pictures import WaitEdge, WaitNode, WaitPicture
from hangscope.report.subject import Subject
from hangscope.report.words import NOT_NAMED, call_words, cut, first_of, grouped, rank_words, some_ranks
from hangscope.verdict.claims import accounts_for, are_in

NODES = 30
_ANOTHER = ", which issued another collective under this number"


def wait_picture(subject: Subject, edges: Edges, roots: frozenset[Drawn]) -> WaitPicture | None:
    """Return the picture, or None where nobody is seen to wait."""
    if not edges:
        return None
    drawn_nodes = [*edges]
    index = {node: i for i, node in enumerate(drawn_nodes)}
    parts = components([[index[target] for target in targets] for targets in edges.values()])
    cycle = frozenset(drawn_nodes[i] for part in parts if len(part) > 1 for i in part)
    classes = _condense(subject, edges, roots, cycle)
    members = grouped((classes[node], node) for node in edges)
    order = sorted(
        members, key=lambda number: (roots.isdisjoint(members[number]), -len(members[number]), number)
    )
    names = {number: f"n{i}" for i, number in enumerate(order[:NODES])}
    nodes = tuple(_node(subject, names[number], members[number], roots, cycle) for number in order[:NODES])
    drawn: dict[tuple[str, str], bool] = {}
    for node, targets in edges.items():
        for target, assumed in targets.items():
            ends = (names.get(classes[node], ""), names.get(classes[target], ""))
            if all(ends) and ends[0] != ends[1]:
                drawn[ends] = drawn.get(ends, True) and assumed
    arrows = tuple(WaitEdge(a, b, assumed) for (a, b), assumed in sorted(drawn.items()))
    text = sentences(subject, nodes, arrows, _awaited(subject, edges, classes, names))
    return WaitPicture(nodes, arrows, text, max(0, len(order) - NODES))


def _condense(
    subject: Subject, edges: Edges, roots: frozenset[Drawn], cycle: frozenset[Drawn]
) -> dict[Drawn, int]:
    """Return a class for each node: nodes of one class look alike and wait for the same classes (partition refinement)."""
    colours: dict[Drawn, object] = {}
    awaited = {target for targets in edges.values() for target in targets}
    for node, targets in edges.items():
        if isinstance(node, Host):
            colours[node] = (node in roots, subject.role(node.rank), node in awaited, not targets)
        elif not isinstance(node, Called):
            colours[node] = (type(node).__name__,)
        else:
            group = subject.incident.groups[node.gid]
            purpose = (group.role or group.desc or group.name, len(group.ranks))
            alone = node in cycle if isinstance(node, PairInstance) else node in roots or node == subject.node
            own = str(node) if alone else ""
            colours[node] = (subject.call_name(node, peers=False), *purpose, node in roots, own)
    numbers = _numbered(colours)
    for _ in range(len(edges)):
        awaiting = {n: tuple(sorted({(numbers[t], a) for t, a in edges[n].items()})) for n in edges}
        refined = _numbered({node: (numbers[node], awaiting[node]) for node in edges})
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
        return _hosts(subject, name, members, root, bold)
    if isinstance(first, VerdictCall):
        verdict = subject.verdict
        label = call_words(CallRef(verdict.op, verdict.seq)) if verdict.op else NOT_NAMED
        group = on_group(verdict.group.label).removeprefix("on ") if verdict.group is not None else ""
        inside = sorted(verdict.waiting_ranks)
        return WaitNode(
            name, "call", label, group, compress(inside), len(inside), root, bold, assumed=not verdict.op
        )
    calls = [n for n in members if isinstance(n, Called)]
    group = _groups(subject, calls)
    # A named rank that made another call there is a node of its own, and no part of this one; in a circle it is both.
    left_out = subject.culprits if not bold else frozenset()
    inside = sorted({rank for node in calls for rank in subject.graph.ranks_in(node)} - left_out)
    ranks = compress(inside) if inside else ""
    alone = first if len(members) == 1 and isinstance(first, Instance) else None
    call = f"{subject.incident.groups[alone.gid].label}/{alone.seq}" if alone is not None else ""
    label = subject.call_name(first, inside[0] if len(inside) == 1 else None)
    if len(members) > 1 and isinstance(first, PairInstance):
        label += f" and {len(members) - 1} alike"
    return WaitNode(name, "call", label, group, ranks, len(inside), root, bold, call=call)


def _hosts(subject: Subject, name: str, members: list[Drawn], root: bool, bold: bool) -> WaitNode:
    ranks = sorted(n.rank for n in members if isinstance(n, Host))
    culprit = bool(subject.culprits.intersection(ranks))
    states = {"waiting": "", "idle": subject.idle_words, "unseen": "not seen"}
    label = f"{'Rank' if len(ranks) == 1 else 'Ranks'} {some_ranks(ranks)}"
    role = "" if culprit else states[subject.role(ranks[0])]
    return WaitNode(name, "host", label, role, compress(ranks), len(ranks), root, bold, culprit)


def _groups(subject: Subject, calls: list[Called]) -> str:
    gids = sorted({n.gid for n in calls})
    groups = [subject.incident.groups[gid] for gid in gids]
    lowest = groups[0]
    if len(groups) == 1:
        return on_group(lowest.label).removeprefix("on ")
    if len({group.role or group.desc for group in groups}) == 1:
        return f"{counted(len(groups), 'group')} ({lowest.role or lowest.desc or 'alike'})"
    return f"{counted(len(groups), 'group')}, {lowest.role or lowest.desc or lowest.name} and others"


def _awaited(
    subject: Subject, edges: Edges, classes: dict[Drawn, int], names: dict[int, str]
) -> dict[str, str]:
    """Return the nodes that the calls of each node wait for."""
    found: dict[str, set[int]] = defaultdict(set)
    for node, targets in edges.items():
        if not isinstance(node, Host) and classes[node] in names:
            found[names[classes[node]]].update(t.rank for t in targets if isinstance(t, Host))
    words = {name: _members(subject, sorted(ranks)) for name, ranks in found.items()}
    for node in edges:
        name = names.get(classes[node], "")
        ranks = found.get(name, set())
        if not isinstance(node, Host | VerdictCall) and any(subject.issued_another(node, r) for r in ranks):
            words[name] = words[name].removesuffix(_ANOTHER) + _ANOTHER
    return words


def _members(subject: Subject, ranks: Sequence[int]) -> str:
    """Return which ranks a call waits for: those that were not seen only where no other is known."""
    known = [rank for rank in ranks if subject.role(rank) != "unseen"]
    if known or not ranks:
        return rank_words(some_ranks(known)) if known else ""
    return f"rank {ranks[0]}, which was not seen" if len(ranks) == 1 else "its members that were not seen"


_LINES = 16


def sentences(
    subject: Subject, nodes: tuple[WaitNode, ...], edges: tuple[WaitEdge, ...], awaited: dict[str, str]
) -> tuple[str, ...]:
    """Return the picture as sentences, from the victims to the root."""
    by_name = {node.id: node for node in nodes}
    lines, past = [], subject.waits_ended
    for node in sorted((n for n in nodes if n.kind == "call"), key=lambda n: -n.count):
        targets = [by_name[e.target] for e in edges if e.source == node.id]
        who = awaited.get(node.id, "")
        waits = [f"{'waited' if past else 'waits'} for {who}"] if who else []
        if earlier := [
            f"{t.label} on {t.group}" if t.group else t.label for t in targets if t.kind == "call"
        ]:
            waits.append(f"{'was' if past else 'is'} queued after {', '.join(earlier)}")
        tail = " and ".join(waits)
        where = f" on {node.group}" if node.group else ""
        call = f"{node.label}{where}"
        if node.ranks:
            call = f"{are_in(cut(in_words(node.ranks), 80), node.count, node.label, where, past)}{', which' if tail else ''}"
        lines.append(f"{call} {tail}." if tail else f"{call}; nobody is known to be missing from it.")
    one = len(lines) == _LINES + 1
    lines = first_of(lines, _LINES, "1 more collective." if one else "{:,} more collectives.")
    verdict = subject.verdict
    if verdict.culprit_ranks and verdict.explained:
        explained = accounts_for(verdict.explained, len(verdict.waiting_ranks))
        lines.append(
            f"Root cause: {ranks_phrase(verdict.culprit_ranks)}, which {agree(verdict.culprit_ranks, 'accounts', 'account')} for {explained}."
        )
    return tuple(lines)
