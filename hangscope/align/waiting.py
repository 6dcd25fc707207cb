"""From frontiers and pairs to the wait-for graph, and to its roots: what waits for nothing else."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import groupby

from hangscope.align.frontier import GroupFrontier
from hangscope.align.p2p import PairInstance, pairs
from hangscope.align.waitgraph import Called, Host, Instance, Node, OpenCall, Root, Unnamed, Untold, WaitGraph
from hangscope.model.incident import Group, Incident, State

MOST_EDGES = 2**18  # beyond them only the first open call of a group waits for members that were not seen


def build(
    incident: Incident,
    views: Sequence[GroupFrontier],
    trouble: bool,
    idle: frozenset[int],
    overdue: frozenset[int],
) -> WaitGraph:
    """Return the wait-for graph with its roots, those that explain most ranks first.

    `trouble` says whether text tells of errors or timeouts (see `open_seqs`); `idle` are ranks that text or a stack shows alive and in
    no overdue call, `overdue` those that it shows waiting, in whatever call.
    """
    graph = WaitGraph(early=frozenset(rank for view in views for rank in view.early))
    graph.pairs = {pair.key: pair for pair in pairs(incident)}
    for rank, calls in sorted(_open_calls(incident, views, graph, trouble, overdue).items()):
        calls.sort(key=lambda c: (c.order, str(c.node)))
        graph.open_calls[rank] = calls
        _connect_in_order(graph, Host(rank), calls)
    by_gid = {view.group.gid: view for view in views}
    called = [node for node in graph.edges if isinstance(node, Called)]
    edges, first = 0, dict[int, int]()
    for node in sorted(called, key=lambda n: n.index if isinstance(n, PairInstance) else n.seq):
        if isinstance(node, PairInstance):
            pair = graph.pairs[node]
            ends = (node.source, pair.send), (node.destination, pair.recv)
            absent = [rank for rank, half in ends if half is None]
        else:
            view = by_gid[node.gid]
            absent = [r for r in view.seen if (view.members[r].enqueued or 0) < node.seq]
            # Later calls of a group wait behind its first.
            is_first = node.seq == first.setdefault(node.gid, node.seq)
            if node.seq > view.proven and (is_first or edges < MOST_EDGES):
                absent += view.unseen
            if view.group.partial:
                graph.connect(node, Unnamed(node.gid), True)
        edges += len(absent)
        for rank in absent:
            graph.connect(node, Host(rank), False)
        if isinstance(node, Instance) and not graph.edges[node]:
            _wait_for_unknown_members(incident, graph, node, by_gid[node.gid].group)
    _find_roots(incident, graph, idle)
    return graph


def _open_calls(
    incident: Incident,
    views: Sequence[GroupFrontier],
    graph: WaitGraph,
    trouble: bool,
    overdue: frozenset[int],
) -> dict[int, list[OpenCall]]:
    """Return what each rank that waits has open."""
    result: dict[int, list[OpenCall]] = defaultdict(list)
    for view in views:
        gid = view.group.gid
        for rank, seqs in view.open_seqs(trouble).items():
            member = view.members[rank]
            for seq in seqs:
                row = member.row_of(seq)
                if row is None and member.queue.told and seq > member.last_row > 0:
                    row = len(member.queue) - 1  # it follows the last one that a line names
                order = (
                    -1 if seq < member.first_row else 1 << 60
                )  # overwritten in the buffer, or stated by a line
                order = order if row is None else int(member.queue.order[row])
                call = OpenCall(Instance(gid, seq), order, view.created(rank, seq), gid, (gid, seq))
                result[rank].append(call)
    for key, pair in graph.pairs.items():
        for half, other in ((pair.send, pair.recv), (pair.recv, pair.send)):
            # What a stale dump shows pending is over, unless a later dump shows that its counterpart never came.
            partner = key.source + key.destination - half.rank if half is not None else -1
            stale = half is not None and half.rank in graph.early
            over = stale and (other is not None or partner in graph.early)
            if half is not None and half.state <= State.STARTED and not over:
                batch = (key.gid, -half.seq)
                result[half.rank].append(OpenCall(key, half.order, half.created, key.gid, batch))
    for rank in overdue - set(result):
        # Whom it waits for is not told, unless by the calls that a line states: it waits, and leads nowhere.
        if not any(queue.told and len(queue) for queue in incident.ranks[rank].queues.values()):
            result[rank].append(OpenCall(Untold(rank), 1 << 61, 0, -1, (-1, rank)))
    return result


def _connect_in_order(graph: WaitGraph, host: Host, calls: Sequence[OpenCall]) -> None:
    """Let a host wait in its first call, each call for those before it, and those of one batch, which ends as a whole, for each other."""
    earlier: list[OpenCall] = []
    for _, batch in groupby(calls, lambda call: call.batch):
        current = list(batch)
        for call in current:
            graph.edges.setdefault(call.node, {})
            for before in earlier:
                graph.connect(call.node, before.node, before.gid != call.gid)
            if not earlier:
                graph.connect(host, call.node, True)
        for one, other in zip(current, [*current[1:], current[0]], strict=True):
            if one.node != other.node:
                graph.connect(one.node, other.node, False)
        earlier = current


def _wait_for_unknown_members(incident: Incident, graph: WaitGraph, node: Instance, group: Group) -> None:
    """Let a call that all known members joined wait for those that its group may have besides: ranks that were not seen, in no group beside it."""
    if group.members_known or group.partial:
        return
    alike = [g.ranks for g in incident.groups if g.desc == group.desc and len(g.ranks) < incident.world_size]
    others = {rank for ranks in (group.ranks, *alike) for rank in ranks}
    may_be = [r for r, record in sorted(incident.ranks.items()) if not record.seen and r not in others]
    for rank in may_be:
        graph.connect(node, Host(rank), True)
    if not may_be and len(group.ranks) == 1:
        graph.connect(node, Unnamed(group.gid), True)


def _find_roots(incident: Incident, graph: WaitGraph, idle: frozenset[int]) -> None:
    """Fill in the roots of a graph, those that explain most ranks first; `idle` as `build` has it."""
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
    """Return the strongly connected components of `edges[node]`, each after those that it reaches (Tarjan, iterative, linear)."""
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
    """Return whether two ranks wait in calls to each other that each posted in an order of its own (calls of other pairs overtake)."""
    pairs = {frozenset((n.source, n.destination)) for n in nodes if isinstance(n, PairInstance)}
    posted = {(rank, call.batch) for node in nodes for rank, call in graph.calls_of(node)}
    batches = Counter(rank for rank, _ in posted)
    return len(pairs) == 1 and sum(number > 1 for number in batches.values()) > 1
