"""Who waits for whom: one graph over call instances and hosts, whose sinks are the roots of the freeze.

Nodes are open call instances (a collective that some member enqueued and did not complete; a point-to-point pair with
an open half) and hosts. All edges mean "waits for all of":

- instance -> host of every member that has not made the call;
- instance -> the call just before it on one member, while that is open there too (certain within a group: one stream;
  assumed across groups, where calls may be asynchronous);
- host -> its earliest open call (assumed: the host may be elsewhere in Python).

Strongly connected components are condensed; components without a way out are roots. The graph is bipartite and its size
is the number of open calls plus the members of stuck instances. Ranks are global; nodes are values: two that say the same
are one.
"""

from __future__ import annotations

from dataclasses import field

from hangscope.align.p2p import Pair, PairInstance
from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Host:
    """The host of one rank."""

    rank: int


@dataclass(frozen=True, slots=True)
class Instance:
    """One collective: the call at a seq of a group."""

    gid: int
    seq: int


@dataclass(frozen=True, slots=True)
class Untold:
    """The call that a rank waits in and that no line names."""

    rank: int


@dataclass(frozen=True, slots=True)
class Unnamed:
    """The members of a group that no line names."""

    gid: int


Called = Instance | PairInstance
Node = Host | Called | Untold | Unnamed


@dataclass(frozen=True, slots=True)
class OpenCall:
    """One open call of one rank; `order` runs over all its groups, `created` is in ns, and calls with one `batch` (gid, number) run together."""

    node: Node
    order: int
    created: int
    gid: int
    batch: tuple[int, int]


@dataclass(slots=True)
class Root:
    """A component that waits for nothing else, and the waiting ranks that reach it (`explains`).

    `kind`: host (a seen rank outside every call), unseen (a rank without a usable dump), call (one instance that all
    its members joined) or cycle. `ranks`: the hosts in it, or for a call the members that it is open on.
    """

    kind: str
    nodes: tuple[Node, ...]
    ranks: tuple[int, ...]
    explains: frozenset[int]
    certain: bool


@dataclass(slots=True)
class WaitGraph:
    """The graph and its roots: what each node waits for, and whether that is assumed; the open calls of ranks in order; who has an `early` dump."""

    edges: dict[Node, dict[Node, bool]] = field(default_factory=dict)
    open_calls: dict[int, list[OpenCall]] = field(default_factory=dict)
    pairs: dict[PairInstance, Pair] = field(default_factory=dict)
    roots: list[Root] = field(default_factory=list)
    early: frozenset[int] = frozenset()
    _callers: dict[Node, list[tuple[int, OpenCall]]] = field(default_factory=dict, repr=False)

    @property
    def waiting(self) -> list[int]:
        """Return the ranks with an open call, ascending."""
        return sorted(self.open_calls)

    def of_known_calls(self) -> WaitGraph:
        """Return the graph without the calls that no line identifies (`Untold` and `Unnamed`): only what can be shown."""
        known: set[Node] = {node for node in self.edges if not isinstance(node, Untold | Unnamed)}
        edges = {n: {t: a for t, a in self.edges[n].items() if t in known} for n in self.edges if n in known}
        told = {rank: [c for c in calls if c.node in known] for rank, calls in self.open_calls.items()}
        return WaitGraph(edges, {r: calls for r, calls in told.items() if calls}, self.pairs, self.roots)

    def connect(self, source: Node, target: Node, assumed: bool) -> None:
        """Add an edge, and its nodes; one that is certain for any rank is certain."""
        targets = self.edges.setdefault(source, {})
        self.edges.setdefault(target, {})
        targets[target] = assumed and targets.get(target, True)

    def ranks_in(self, node: Node) -> list[int]:
        """Return the ranks that are in a call, by rank: those that have none open before it, else all on which it is queued."""
        calls = self.calls_of(node)
        return [r for r, call in calls if call.batch == self.open_calls[r][0].batch] or [r for r, _ in calls]

    def calls_of(self, node: Node) -> list[tuple[int, OpenCall]]:
        """Return (rank, open call) of every rank that is in an instance, by rank; only once the graph is built."""
        if not self._callers:
            for rank, calls in sorted(self.open_calls.items()):
                for call in calls:
                    self._callers.setdefault(call.node, []).append((rank, call))
        return self._callers.get(node, [])
