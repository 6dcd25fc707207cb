"""Members that others wait for: seen and not there, or not seen at all."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.nodes import Node
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Absent,
    Candidate,
    Extra,
    Finding,
    OwnCall,
    StuckCall,
    Unseen,
)
from hangscope.explain.generate.program_divergence import ProgramDivergence


class Absence:
    """Finds those who have not made a call that others wait in."""

    def __init__(self, aligned: Aligned) -> None:
        self.aligned = aligned

    def seen(self) -> Finding | None:
        """Return the finding of hosts that were seen and wait for nobody, or of the few who made them look absent."""
        roots = [r for r in self.aligned.graph.roots if r.kind == "host" and r.explains]
        # Who waits in a send or receive of gloo's, which no recorder keeps, is a victim of one that waits for nobody.
        stood = self.aligned.stated.whereabouts
        inside = {rank for rank, where in stood.items() if where.inside}
        roots = [r for r in roots if not inside.issuperset(r.ranks)] or roots
        hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
        node = self.aligned.first_instance(lambda absent: bool(absent & set(hosts)))
        if node is None:
            return None
        explains = frozenset[int]().union(*(r.explains for r in roots))
        missed: set[Node] = {n for n in self.aligned.graph.nodes if self.aligned.awaited(n) & set(hosts)}
        parted = ProgramDivergence(self.aligned).find(missed)
        if parted is not None and set(parted.culprits) <= set(hosts):
            return self.aligned.reached_by(parted, explains)
        stuck = self.aligned.stuck_in(node, hosts)
        return self.aligned.reached_by(self._outlier(hosts, stuck), explains)

    def _outlier(self, hosts: tuple[int, ...], stuck: StuckCall) -> Finding:
        """Ask whether those who wait made a call too many, rather than those who are absent one too few."""
        view, seq = stuck.view, stuck.seq
        finding = Absent(hosts, stuck, self.aligned.last_call(hosts[0], view))
        if view is None or seq is None or stuck.history is None or stuck.pair is not None:
            return finding
        absent = tuple(r for r in hosts if r in view.members)
        joined = tuple(r for r in view.seen if (view.members[r].enqueued or 0) >= seq)
        if not joined or len(joined) > len(absent) or stuck.history.goes_on(joined[0], seq):
            return finding
        if len(joined) == len(absent):
            return replace(finding, tie=True)
        # Those who wait nowhere are busy, and may come to the call yet.
        why = "they are the majority: the few who wait may have made a call that the others do not make"
        return Extra(
            joined, stuck, OwnCall(view.kind_of(joined[0], seq), seq), tie=True,
            set_aside=(Candidate(absent, Absent.name, why),),
        )  # fmt: skip

    def unseen(self) -> Finding | None:
        """Return the finding of ranks that left no usable record and that others wait for."""
        excused = self.aligned.uncollected | self.aligned.early
        roots = [
            r
            for r in self.aligned.graph.roots
            if r.kind == "unseen" and r.explains and not set(r.ranks) <= excused
        ]
        if not roots:
            return None
        ranks = sorted({rank for root in roots for rank in root.ranks})
        explains = frozenset[int]().union(*(r.explains for r in roots))
        # A rank that lost a peer or timed out itself was waiting, although no dump of it shows where.
        roots = [r for r in roots if not set(r.ranks) <= self.aligned.stated.witnesses] or roots
        # Where several ranks are unseen, those that more waiting ranks lead to come first.
        most = max(len(r.explains) for r in roots)
        named = tuple(sorted({rank for r in roots if len(r.explains) == most for rank in r.ranks}))
        node = self.aligned.first_instance(lambda absent: bool(absent & set(named)))
        if node is None:
            return None
        others = [rank for rank in ranks if rank not in named]
        waited = self.aligned.stated.witnesses.intersection(others)
        finding = self.aligned.reached_by(Unseen(named, self.aligned.stuck_in(node, named)), explains)
        return Unseen(
            named, finding.stuck, waiting=tuple(sorted({*finding.waiting, *waited})), reached=finding.reached | waited,
            set_aside=tuple(Candidate((rank,), Unseen.name, _why_not(rank in waited)) for rank in others),
        )  # fmt: skip


def _why_not(waited: bool) -> str:
    return "its own log shows it waiting" if waited else "fewer waiting ranks lead to it"
