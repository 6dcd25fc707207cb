"""Who waits for whom: one graph over call instances and hosts, whose sinks are the roots of the freeze.

Nodes are open call instances (a collective that some member enqueued and did not complete; a point-to-point pair with
an open half) and hosts. All edges mean "waits for all of":

- instance -> host of every member that has not made the call;
- instance -> the call just before it on one member, while that is open there too (certain within a group: one stream;
  assumed across groups, where calls may be asynchronous);
- host -> its earliest open call (assumed: the host may be elsewhere in Python).

Strongly connected components are condensed; components without a way out are roots. The graph is bipartite and its size
is the number of open calls plus the members of stuck instances.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field

from hangscope.align.components import components
from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import match_key
from hangscope.align.nodes import Called, Host, Instance, Node, PairInstance, Unnamed, Untold
from hangscope.align.p2p import Pair, pairs
from hangscope.dataclass import dataclass
from hangscope.incident import Incident, State

MOST_EDGES = (
    2**18
)  # to members that were not seen; beyond them only the first open call of a group has its own


@dataclass(frozen=True, slots=True)
class OpenCall:
    """One open call of one rank; `order` runs over all its groups, `created` is in ns.

    Calls with one `batch` (gid, number) run at the same time, as the sends and receives of one batch_isend_irecv do.
    """

    node: Node
    order: int
    created: int
    gid: int
    batch: tuple[int, int]


@dataclass(slots=True)
class Root:
    """A component that waits for nothing else.

    `kind`: host (a seen rank outside every call), unseen (a rank without a usable dump), call (one instance that all
    its members joined) or cycle. `ranks`: the hosts in it, or for a call the members that it is open on. `explains`:
    the waiting ranks that reach it.
    """

    kind: str
    nodes: tuple[Node, ...]
    ranks: tuple[int, ...]
    explains: frozenset[int]
    certain: bool


@dataclass(slots=True)
class WaitGraph:
    """The graph and its roots. `edges[i]` holds (target index, assumed) of node `nodes[i]`."""

    nodes: list[Node] = field(default_factory=list)
    edges: list[list[tuple[int, bool]]] = field(default_factory=list)
    index: dict[Node, int] = field(default_factory=dict)
    open_calls: dict[int, list[OpenCall]] = field(default_factory=dict)
    pairs: dict[PairInstance, Pair] = field(default_factory=dict)
    roots: list[Root] = field(default_factory=list)
    _known: dict[tuple[int, int], int] = field(default_factory=dict, repr=False)
    _callers: dict[Node, list[tuple[int, OpenCall]]] = field(default_factory=dict, repr=False)

    @property
    def waiting(self) -> list[int]:
        """Return the ranks with an open call, ascending."""
        return sorted(r for r, calls in self.open_calls.items() if calls)

    def of_known_calls(self) -> WaitGraph:
        """Return the graph without what no line tells (`Untold` and `Unnamed`): calls and hosts alone, as they can be shown."""
        kept = [i for i, node in enumerate(self.nodes) if not isinstance(node, Untold | Unnamed)]
        if len(kept) == len(self.nodes):
            return self
        place = {old: new for new, old in enumerate(kept)}
        shown = WaitGraph(
            [self.nodes[i] for i in kept],
            [[(place[t], assumed) for t, assumed in self.edges[i] if t in place] for i in kept],
            pairs=self.pairs,
            roots=self.roots,
        )
        shown.index = {node: i for i, node in enumerate(shown.nodes)}
        for rank, calls in self.open_calls.items():
            known = [call for call in calls if not isinstance(call.node, Untold)]
            if known:
                shown.open_calls[rank] = known
        return shown

    def add(self, node: Node) -> int:
        """Return the index of a node, adding it when it is new."""
        position = self.index.get(node)
        if position is None:
            position = self.index[node] = len(self.nodes)
            self.nodes.append(node)
            self.edges.append([])
        return position

    def connect(self, source: int, target: int, assumed: bool) -> None:
        """Add an edge once; one that is certain for any rank is certain."""
        known = self._known.get((source, target))
        if known is None:
            self._known[(source, target)] = len(self.edges[source])
            self.edges[source].append((target, assumed))
        elif not assumed:
            self.edges[source][known] = (target, False)

    def calls_of(self, node: Node) -> list[tuple[int, OpenCall]]:
        """Return (rank, open call) of every rank that is in an instance, by rank; only once the graph is built."""
        if not self._callers:
            for rank, calls in sorted(self.open_calls.items()):
                for call in calls:
                    self._callers.setdefault(call.node, []).append((rank, call))
        return self._callers.get(node, [])

    def targets(self, node: Node) -> list[tuple[Node, bool]]:
        """Return what a node waits for, each with whether the edge is assumed."""
        return [(self.nodes[t], assumed) for t, assumed in self.edges[self.index[node]]]


def open_seqs(view: GroupFrontier, trouble: bool = True) -> dict[int, list[int]]:
    """Return for each seen member the seqs that it is really waiting in.

    On gloo a retired last call may be done or failed, and a done one may still read "scheduled": where every member
    joined a call with matching kinds and one of them retired it, it is over; where peers' later calls prove it, too. A
    retired call alone accuses no member that was not seen, unless `trouble` was told in text.
    """
    result: dict[int, list[int]] = {}
    verdict: dict[int, bool] = {}
    for rank, member in view.members.items():
        if member.enqueued is None and rank not in view.early:
            continue
        kept = []
        for seq in (*member.pending, *member.unknown):
            row = member.row_of(seq)
            gloo = (
                row is not None
                and member.queue is not None
                and view.kinds.without_sizes(int(member.queue.kind[row])).backend == "gloo"
            )
            if gloo:
                if seq <= view.proven:
                    continue
                if seq not in verdict:
                    verdict[seq] = _over_on_gloo(view, seq, trouble)
                if verdict[seq]:
                    continue
            kept.append(seq)
        result[rank] = sorted(kept)
    return result


def _over_on_gloo(view: GroupFrontier, seq: int, trouble: bool) -> bool:
    retired = pending = False
    keys = set()
    for rank, member in view.members.items():
        if member.enqueued is None:
            continue
        if member.enqueued < seq:
            return False
        kind = view.kind_of(rank, seq)
        if kind is not None:
            keys.add(match_key(kind))
        retired = retired or seq in member.unknown
        pending = pending or seq in member.pending
    if view.unseen and (trouble or pending):
        return False
    return retired and len(keys) <= 1


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
                order = (
                    int(member.queue.order[row]) if row is not None and member.queue is not None else 1 << 60
                )
                calls[rank].append(
                    OpenCall(
                        Instance(view.group.gid, seq),
                        order,
                        view.created(rank, seq),
                        view.group.gid,
                        (view.group.gid, seq),
                    )
                )
    for pair in pairs(incident):
        graph.pairs[pair.key] = pair
        for half in (pair.send, pair.recv):
            if half is not None and half.state in (State.PENDING, State.STARTED):
                calls[half.rank].append(
                    OpenCall(pair.key, half.order, half.created, pair.key.gid, (pair.key.gid, -half.seq))
                )
    for rank in sorted(overdue):
        stated = any(q.told and len(q) for q in incident.ranks[rank].queues.values())
        if not calls[rank] and not stated:  # whom it waits for is not told: it waits, and leads nowhere
            calls[rank].append(OpenCall(Untold(rank), 1 << 61, 0, -1, (-1, rank)))
    by_gid = {view.group.gid: view for view in views}
    for rank in sorted(calls):
        ordered = graph.open_calls[rank] = sorted(calls[rank], key=lambda c: (c.order, str(c.node)))
        earlier: list[OpenCall] = []
        current: list[OpenCall] = []
        for call in ordered:
            if current and current[-1].batch != call.batch:
                earlier, current = current, []
            current.append(call)
            node = graph.add(call.node)
            for before in earlier:
                graph.connect(node, graph.add(before.node), before.gid != call.gid)
            if not earlier:
                graph.connect(graph.add(Host(rank)), node, True)
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
    early = {rank for view in views for rank in view.early}
    _find_roots(incident, graph, early, idle)
    return graph


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
    return absent + (
        [] if view.proven >= seq or not unseen else [r for r in view.unseen if not _entered(view, r, seq)]
    )


def _entered(view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether an early dump shows this call nevertheless."""
    return rank in view.early and view.members[rank].last_row >= seq


def _find_roots(incident: Incident, graph: WaitGraph, early: set[int], idle: frozenset[int]) -> None:
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
        graph.roots.append(
            _root(incident, graph, part, reach[before] | own if own else reach[before], early, idle)
        )
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
    early: set[int],
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
        return Root("call", nodes, members, explains, True)
    if len(nodes) > 1:
        return Root("cycle", nodes, hosts, explains, certain)
    if hosts:
        record = incident.ranks[hosts[0]]
        known = hosts[0] in idle or (
            record.seen and hosts[0] not in early and not any(queue.cut for queue in record.queues.values())
        )
        return Root("host" if known else "unseen", nodes, hosts, explains - set(hosts), True)
    open_on = tuple(dict.fromkeys(rank for rank, _ in graph.calls_of(nodes[0])))
    return Root("call", nodes, open_on, explains, True)
