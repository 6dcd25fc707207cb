"""One incident with its ranks aligned: graph, frontiers, histories and programs, as every search for a root looks at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from hangscope.align.divergence import GroupHistory
from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Called, Host, Node, PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import OpenCall, WaitGraph
from hangscope.explain.finding import AnyFinding, OwnCall, StuckCall, reaching
from hangscope.explain.generate.interleaving import Interleaving
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.excerpt import not_collected
from hangscope.incident import Incident


class Aligned:
    """What all searches share.

    `stated` is what text and stacks say; `uncollected` are ranks of which nothing was collected, so that their silence accuses
    nobody; `ended` died by a fault of their own; `early` have a dump older than their peers'. All ranks are global.
    """

    def __init__(
        self,
        incident: Incident,
        views: Sequence[GroupFrontier],
        histories: dict[int, GroupHistory],
        graph: WaitGraph,
        stated: Statements,
    ) -> None:
        self.incident, self.graph, self.histories, self.stated = incident, graph, histories, stated
        self.views = {v.group.gid: v for v in views}
        self.waiting = graph.waiting
        self.uncollected = not_collected(incident, stated)
        self.ended = frozenset(death.rank for death in stated.deaths)
        self.early = graph.early
        self.programs = Programs(incident)
        self.interleaving = Interleaving(self.programs)

    def calls_of(self, node: Node) -> list[tuple[int, OpenCall]]:
        """Return the open calls of an instance, each with its rank."""
        return self.graph.calls_of(node)

    def when(self, node: Node) -> tuple[int, str]:
        """Return a sort key: when an instance was first entered (ns), and its name."""
        return (min((c.created for _, c in self.calls_of(node) if c.created), default=1 << 62), str(node))

    def awaited(self, node: Node) -> set[int]:
        """Return the ranks that an instance waits for."""
        return {target.rank for target, _ in self.graph.targets(node) if isinstance(target, Host)}

    def first_instance(self, wanted: Callable[[set[int]], bool]) -> Called | None:
        """Return the open instance that most ranks are stuck in whose absent members satisfy `wanted`, the earliest of equals."""
        stuck: Counter[Node] = Counter(calls[0].node for calls in self.graph.open_calls.values() if calls)
        times: dict[Node, int] = {}
        for calls in self.graph.open_calls.values():
            for call in calls:
                times[call.node] = min(times.get(call.node, 1 << 62), call.created or 1 << 61)
        fitting = [n for n in times if isinstance(n, Called) and wanted(self.awaited(n))]
        return min(fitting, key=lambda n: (-stuck[n], times[n], str(n)), default=None)

    def stuck_in(self, node: Called, culprits: Sequence[int] = ()) -> StuckCall:
        """Return an instance as the call that ranks are stuck in, with what one of them but the culprits called."""
        view, history = self.views[node.gid], self.histories.get(node.gid)
        inside = [r for r, _ in self.calls_of(node)]
        rank = next((r for r in inside if r not in culprits), inside[0] if inside else None)
        if isinstance(node, PairInstance):
            pair = self.graph.pairs[node]
            half = pair.send or pair.recv
            if half is None:
                return StuckCall(view, None, rank, None, history, pair)
            return StuckCall(view, half.seq, half.rank, self.incident.kinds[half.kind], history, pair)
        kind = view.kind_of(rank, node.seq) if rank is not None else None
        return StuckCall(view, node.seq, rank, kind, history)

    def last_call(self, rank: int, view: GroupFrontier | None) -> OwnCall:
        """Return the last call that a rank enqueued on a group."""
        if view is None or rank not in view.members:
            return OwnCall()
        member = view.members[rank]
        if member.last_row:
            return OwnCall(view.kind_of(rank, member.last_row), member.last_row)
        return OwnCall(None, member.enqueued)

    def reached_by(self, finding: AnyFinding, explains: frozenset[int]) -> AnyFinding:
        """Return the finding with who waits, and which of them its root explains."""
        return reaching(finding, tuple(r for r in self.waiting if r not in finding.culprits), explains)
