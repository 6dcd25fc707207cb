"""One incident with its ranks aligned: graph, frontiers and programs, as every search for a root looks at it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

from hangscope.align.counters import Contradiction
from hangscope.align.frontier import GroupFrontier
from hangscope.align.p2p import PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import Called, Host, Node, Root, WaitGraph
from hangscope.explain.finding import AnyFinding, Finding, OwnCall, StuckCall
from hangscope.explain.predict import Replay
from hangscope.explain.statements.statements import Statements
from hangscope.model.incident import CallKind, Incident


class Aligned:
    """What all searches share: `stated` is what text and stacks say; the ranks (global) `early` have a dump older than their peers'."""

    def __init__(
        self,
        incident: Incident,
        views: Sequence[GroupFrontier],
        graph: WaitGraph,
        stated: Statements,
        contradictions: Sequence[Contradiction] = (),
    ) -> None:
        self.incident, self.graph, self.stated = incident, graph, stated
        self.views = {v.group.gid: v for v in views}
        self.waiting, self.early = graph.waiting, graph.early
        self.contradictions, self.programs = tuple(contradictions), Programs(incident)

    def roots(self, kind: str) -> list[Root]:
        """Return the roots of a kind to which a waiting rank leads."""
        return [root for root in self.graph.roots if root.kind == kind and root.explains]

    def when(self, node: Node) -> tuple[int, str]:
        """Return a sort key: when an instance was first entered (ns), and its name."""
        entered = (call.created for _, call in self.graph.calls_of(node) if call.created)
        return min(entered, default=1 << 62), str(node)

    def awaiting(self, absent: Collection[int]) -> list[Called]:
        """Return the open instances that wait for some of the ranks `absent`."""
        hosts, edges = {Host(rank) for rank in absent}, self.graph.edges
        return [node for node in edges if isinstance(node, Called) and not hosts.isdisjoint(edges[node])]

    def first_instance(self, absent: Collection[int]) -> Called | None:
        """Return the open instance that most ranks are stuck in and that waits for some of `absent`, the earliest of equals."""
        stuck: Counter[Node] = Counter(calls[0].node for calls in self.graph.open_calls.values() if calls)
        return min(self.awaiting(absent), key=lambda node: (-stuck[node], *self.when(node)), default=None)

    def missing_half(self, node: Node) -> int | None:
        """Return the rank that has not made its half of a pair, or None where both are there, or it is no pair."""
        pairs = [self.graph.pairs[node]] if isinstance(node, PairInstance) else []
        ends = [end for p in pairs for end in ((p.key.source, p.send), (p.key.destination, p.recv))]
        return next((rank for rank, half in ends if half is None), None)

    def stuck_in(self, node: Called, culprits: Sequence[int] = ()) -> StuckCall:
        """Return an instance as the call that ranks are stuck in, with what one of them but the culprits called."""
        view, programs = self.views[node.gid], self.programs
        if isinstance(node, PairInstance):
            pair = self.graph.pairs[node]
            half = pair.send or pair.recv
            assert half is not None  # an open pair has one
            before = programs.before(half.rank, programs.row_of(half.rank, half.order))
            return StuckCall(view, half.seq, half.rank, self.incident.kinds[half.kind], before, pair)
        inside = [r for r, _ in self.graph.calls_of(node)]
        others = [r for r in inside if r not in culprits] or inside
        rank = nearest(view, node.seq, others, view.kind_of(culprits[0], node.seq) if culprits else None)
        before = programs.before(rank, programs.row_at(rank, node.gid, node.seq))
        return StuckCall(view, node.seq, rank, view.kind_of(rank, node.seq), before)

    def last_call(self, rank: int, view: GroupFrontier) -> OwnCall:
        """Return the last call that a rank enqueued on any group, or how many it enqueued on the given one where no call is known."""
        program, member = self.programs.of(rank), view.members.get(rank)
        if not len(program.tokens):
            return OwnCall(None, member.enqueued if member is not None else None)
        gid, seq, kind, _ = self.programs.call(rank, -1)
        return OwnCall(kind, seq, gid if gid != view.group.gid else None)

    def reached_by(self, finding: AnyFinding, undone: Iterable[int] = ()) -> AnyFinding:
        """Return the finding with who waits, and which of them it accounts for; without culprits, if all of the stuck group did as expected."""
        waiting = tuple(r for r in self.waiting if r not in finding.culprits)
        members = finding.stuck.view.members if finding.stuck.view is not None else ()
        reached = self.replay.accounts_for(finding.culprits, undone or finding.culprits or members)
        return replace(finding, waiting=waiting, reached=reached.intersection(waiting))

    def of_one_fault(self, first: AnyFinding, others: Iterable[AnyFinding]) -> AnyFinding:
        """Return a finding with the culprits of those that show the same calls in a group of the same kind: one fault of several replicas."""
        kinds = self.programs.tokens.group_kinds

        def calls(finding: Finding) -> tuple[object, ...]:
            group = finding.stuck.group
            return group and kinds[group.gid], finding.own.kind, finding.stuck.kind

        alike = (f for f in others if isinstance(f, type(first)) and calls(f) == calls(first))
        named = {*first.culprits, *(rank for finding in alike for rank in finding.culprits if first.culprits)}
        if len(named) in (0, len(first.culprits)) or 2 * len(named) > len(self.incident.ranks):
            return first
        return self.reached_by(replace(first, culprits=tuple(sorted(named))))

    @cached_property
    def replay(self) -> Replay:
        """Return the wait-for graph, ready to be run on."""
        return Replay(self.graph)


def nearest(view: GroupFrontier, seq: int, ranks: Sequence[int], own: CallKind | None) -> int:
    """Return the first of the ranks whose collective comes through the same outer frames as another one, as far as any does."""
    if own is None or not own.stack:
        return ranks[0]
    by_kind = {view.kind_index(rank, seq): rank for rank in reversed(ranks)}

    def shared(rank: int) -> int:
        kind = view.kind_of(rank, seq)
        frames = zip(reversed(own.stack), reversed(kind.stack if kind is not None else ()), strict=False)
        return sum(1 for _ in takewhile(lambda both: both[0] == both[1], frames))

    return max(sorted(by_kind.values()), key=shared)
