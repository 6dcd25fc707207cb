"""From frontiers and pairs to the wait-for graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Called, Host, Instance, PairInstance, Unnamed, Untold
from hangscope.align.open_calls import open_seqs
from hangscope.align.p2p import pairs
from hangscope.align.roots import find_roots
from hangscope.align.waitgraph import OpenCall, WaitGraph
from hangscope.incident import Incident, State

MOST_EDGES = (
    2**18
)  # to members that were not seen; beyond them only the first open call of a group has its own


def build(
    incident: Incident,
    views: Sequence[GroupFrontier],
    trouble: bool = True,
    idle: frozenset[int] = frozenset(),
    overdue: frozenset[int] = frozenset(),
) -> WaitGraph:
    """Return the wait-for graph with its roots, those that explain most ranks first.

    `trouble` says whether text tells of errors or timeouts (see `open_seqs`); `idle` are ranks that text shows alive and in
    no overdue call, `overdue` those that it shows waiting, in whatever call.
    """
    graph = WaitGraph()
    calls: dict[int, list[OpenCall]] = defaultdict(list)
    for view in views:
        for rank, seqs in open_seqs(view, trouble).items():
            member = view.members[rank]
            for seq in seqs:
                row = member.row_of(seq)
                beyond = -1 if seq < member.first_row else 1 << 60  # lost by the ring, or told by a line
                order = (
                    int(member.queue.order[row]) if row is not None and member.queue is not None else beyond
                )
                calls[rank].append(
                    OpenCall(
                        Instance(view.group.gid, seq),
                        order,
                        view.created(rank, seq),
                        view.group.gid,
                        (view.group.gid, seq),
                        _of_a_thread(view, rank, seq),
                    )
                )
    for pair in pairs(incident):
        graph.pairs[pair.key] = pair
        for half in (pair.send, pair.recv):
            if half is not None and half.state in (State.PENDING, State.STARTED):
                calls[half.rank].append(
                    OpenCall(
                        pair.key,
                        half.order,
                        half.created,
                        pair.key.gid,
                        (pair.key.gid, -half.seq),
                        incident.kinds[half.kind].of_a_thread,
                    )
                )
    for rank in sorted(overdue):
        stated = any(q.told and len(q) for q in incident.ranks[rank].queues.values())
        if not calls[rank] and not stated:  # whom it waits for is not told: it waits, and leads nowhere
            calls[rank].append(OpenCall(Untold(rank), 1 << 61, 0, -1, (-1, rank)))
    by_gid = {view.group.gid: view for view in views}
    for rank in sorted(calls):
        ordered = graph.open_calls[rank] = sorted(calls[rank], key=lambda c: (c.order, str(c.node)))
        for of_a_thread in (False, True):
            own = [call for call in ordered if call.of_a_thread == of_a_thread]
            # A script that is in no call may wait for a thread of its own that is in one.
            _connect_in_order(graph, Host(rank, of_a_thread), own if own or of_a_thread else ordered)
        _connect_batches(graph, ordered)
    first: dict[int, int] = {}
    for called in [n for n in graph.nodes if isinstance(n, Instance)]:
        if by_gid[called.gid].group.partial:
            graph.connect(graph.index[called], graph.add(Unnamed(called.gid)), True)
        first[called.gid] = min(called.seq, first.get(called.gid, called.seq))
    edges = 0
    for instance in [n for n in graph.nodes if isinstance(n, Called)]:
        # Later calls of a group wait behind its first open one, which waits for all who were not seen.
        whole = (
            edges < MOST_EDGES or not isinstance(instance, Instance) or instance.seq == first[instance.gid]
        )
        absent = _absent_from(instance, by_gid, graph, whole)
        edges += len(absent)
        for rank in absent:
            graph.connect(graph.index[instance], graph.add(Host(rank)), False)
    _wait_for_unknown_members(incident, graph, by_gid)
    graph.early = frozenset(rank for view in views for rank in view.early)
    find_roots(incident, graph, idle)
    return graph


def _connect_in_order(graph: WaitGraph, host: Host, calls: Sequence[OpenCall]) -> None:
    """Let a host wait in its first call, and each call for those before it; `calls` in enqueue order."""
    earlier: list[OpenCall] = []
    current: list[OpenCall] = []
    for call in calls:
        if current and current[-1].batch != call.batch:
            earlier, current = current, []
        current.append(call)
        node = graph.add(call.node)
        for before in earlier:
            graph.connect(node, graph.add(before.node), before.gid != call.gid)
        if not earlier:
            graph.connect(graph.add(host), node, True)


def _of_a_thread(view: GroupFrontier, rank: int, seq: int) -> bool:
    index = view.kind_index(rank, seq)
    return index is not None and view.kinds.without_sizes(index).of_a_thread


def _connect_batches(graph: WaitGraph, ordered: Sequence[OpenCall]) -> None:
    """Let the calls of one batch wait for each other: a batch completes as a whole."""
    batches: dict[tuple[int, int], list[OpenCall]] = defaultdict(list)
    for call in ordered:
        if isinstance(call.node, PairInstance):
            batches[call.batch].append(call)
    for batch in batches.values():
        for one, other in zip(batch, [*batch[1:], batch[0]], strict=True):
            if one.node != other.node:
                graph.connect(graph.add(one.node), graph.add(other.node), False)


def _wait_for_unknown_members(incident: Incident, graph: WaitGraph, views: dict[int, GroupFrontier]) -> None:
    """Let a call that all known members joined wait for those that its group may have besides: all else is in it."""
    for called in [n for n in graph.nodes if isinstance(n, Instance) and not graph.edges[graph.index[n]]]:
        view = views[called.gid]
        may_be = _may_be_members(incident, view)
        for rank in may_be:
            graph.connect(graph.index[called], graph.add(Host(rank)), True)
        if not may_be and not view.group.members_known and len(view.group.ranks) == 1:
            graph.connect(graph.index[called], graph.add(Unnamed(called.gid)), True)


def _may_be_members(incident: Incident, view: GroupFrontier) -> list[int]:
    """Return the ranks that were not seen and may be members of a group whose members no dump lists."""
    group = view.group
    if group.members_known or group.partial or len(group.ranks) == incident.world_size:
        return []
    alike = {
        rank
        for other in incident.groups
        if other.desc == group.desc and other.gid != group.gid
        for rank in other.ranks
        if len(other.ranks) < incident.world_size
    }
    return [
        r
        for r, record in sorted(incident.ranks.items())
        if not record.seen and r not in alike | set(group.ranks)
    ]


def _absent_from(
    node: Called, views: dict[int, GroupFrontier], graph: WaitGraph, unseen: bool = True
) -> list[int]:
    """Return the members that an open instance waits for: seen and not there, or, where `unseen` holds, not seen."""
    if isinstance(node, PairInstance):
        pair = graph.pairs[node]
        halves = ((node.source, pair.send), (node.destination, pair.recv))
        return [rank for rank, half in halves if half is None]
    view, seq = views[node.gid], node.seq
    absent = [r for r in view.seen if (view.members[r].enqueued or 0) < seq]
    return absent + ([] if view.proven >= seq or not unseen else list(view.unseen))
