"""One incident as the finders look at it: its graph, frontiers and histories, and findings made at one instance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from hangscope.align.divergence import GroupHistory
from hangscope.align.frontier import GroupFrontier
from hangscope.align.nodes import Called, Host, Node, PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import OpenCall, WaitGraph
from hangscope.explain.finding import Candidate, Finding
from hangscope.explain.interleaving import Interleaving
from hangscope.incident import CallKind, Incident


class Scene:
    """What all finders share.

    `candidates` collects who was set aside and why, `witnesses` are ranks whose own log shows them waiting, `uncollected`
    those of which nothing was collected, so that their silence accuses nobody; `ended` died by a fault of their own.
    """

    def __init__(
        self,
        incident: Incident,
        views: Sequence[GroupFrontier],
        histories: dict[int, GroupHistory],
        graph: WaitGraph,
        witnesses: frozenset[int] = frozenset(),
        uncollected: frozenset[int] = frozenset(),
        ended: frozenset[int] = frozenset(),
    ) -> None:
        self.incident, self.graph, self.histories = incident, graph, histories
        self.views = {v.group.gid: v for v in views}
        self.waiting = graph.waiting
        self.witnesses = witnesses
        self.uncollected = uncollected
        self.ended = ended
        self.candidates: list[Candidate] = []
        self.programs = Programs(incident)
        self.interleaving = Interleaving(self.programs)

    def calls_of(self, node: Node) -> list[tuple[int, OpenCall]]:
        """Return the open calls of an instance, each with its rank."""
        return self.graph.calls_of(node)

    def when(self, node: Node) -> tuple[int, str]:
        """Return a sort key: when an instance was first entered (ns), and its name."""
        return (min((c.created for _, c in self.calls_of(node) if c.created), default=1 << 62), str(node))

    def first_instance(self, wanted: Callable[[set[int]], bool]) -> Called | None:
        """Return the open instance that most ranks are stuck in whose absent members satisfy `wanted`, the earliest of equals."""
        stuck: Counter[Node] = Counter(calls[0].node for calls in self.graph.open_calls.values() if calls)
        times: dict[Node, int] = {}
        for calls in self.graph.open_calls.values():
            for call in calls:
                times[call.node] = min(times.get(call.node, 1 << 62), call.created or 1 << 61)
        fitting = [n for n in times if isinstance(n, Called) and wanted(self.awaited(n))]
        return min(fitting, key=lambda n: (-stuck[n], times[n], str(n)), default=None)

    def awaited(self, node: Node) -> set[int]:
        """Return the ranks that an instance waits for."""
        return {target.rank for target, _ in self.graph.targets(node) if isinstance(target, Host)}

    def at(self, node: Called, form: str, culprits: tuple[int, ...]) -> Finding:
        """Return a finding at one instance, with what those inside it called."""
        inside = [r for r, _ in self.calls_of(node)]
        rank = next((r for r in inside if r not in culprits), inside[0] if inside else None)
        if isinstance(node, PairInstance):
            pair = self.graph.pairs[node]
            view = self.views[node.gid]
            half = pair.send or pair.recv
            kind = self.incident.kinds[half.kind] if half is not None else None
            return Finding(
                form,
                culprits,
                view,
                self.histories.get(node.gid),
                half.seq if half else None,
                waiting_rank=half.rank if half else rank,
                waiting_kind=kind,
                pair=pair,
            )
        view, seq = self.views[node.gid], node.seq
        return Finding(
            form,
            culprits,
            view,
            self.histories.get(view.group.gid),
            seq,
            waiting_rank=rank,
            waiting_kind=view.kind_of(rank, seq) if rank is not None else None,
        )

    def last_call(self, rank: int, view: GroupFrontier | None) -> tuple[CallKind | None, int | None]:
        """Return the last call that a rank enqueued on a group, and its seq."""
        if view is None or rank not in view.members:
            return None, None
        member = view.members[rank]
        return (
            (view.kind_of(rank, member.last_row), member.last_row)
            if member.last_row
            else (None, member.enqueued)
        )

    def with_waiting(self, finding: Finding, explains: set[int]) -> Finding:
        """Return the finding with who waits, and how many of them its root explains."""
        waiting = tuple(r for r in self.waiting if r not in finding.culprits)
        reached = frozenset(explains & set(waiting))
        return replace(finding, waiting=waiting, explained=len(reached), reached=reached)
