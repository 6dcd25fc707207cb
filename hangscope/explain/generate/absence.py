"""Members that others wait for: seen and not there, or not seen at all."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.waitgraph import Called, Instance
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Absent, Candidate, Extra, Finding, OwnCall, Unseen
from hangscope.explain.text.excerpt import not_collected


def seen_absent(aligned: Aligned) -> Finding | None:
    """Return the finding of ranks that were seen and wait for nobody, or of the few that make them look absent."""
    roots = aligned.roots("host")
    # A rank in a send or receive of gloo, which no recorder keeps, is a victim of one that waits for nobody.
    roots = [r for r in roots if not aligned.stated.inside.issuperset(r.ranks)] or roots
    hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
    node = aligned.first_instance(hosts)
    if node is None:
        return None
    return aligned.reached_by(_absent_or_extra(aligned, hosts, node))


def _absent_or_extra(aligned: Aligned, hosts: tuple[int, ...], node: Called) -> Finding:
    """Ask whether those that wait issued a collective too many, rather than those that are absent one too few."""
    stuck, view, programs = aligned.stuck_in(node, hosts), aligned.views[node.gid], aligned.programs
    finding = Absent(hosts, stuck, aligned.last_call(hosts[0], view))
    if not isinstance(node, Instance):
        return finding
    absent = tuple(r for r in hosts if r in view.members)
    joined = tuple(r for r in view.seen if (view.members[r].enqueued or 0) >= node.seq)
    if not joined or len(joined) > len(absent):
        return finding
    if programs.keeps_pattern(joined[0], programs.row_at(joined[0], node.gid, node.seq)):
        return finding
    if len(joined) == len(absent):
        return replace(finding, tie=True)
    # Ranks that wait nowhere are busy, and may still come to the collective.
    why = "they are the majority: the few blocked ranks may have issued an extra collective"
    own, aside = OwnCall(view.kind_of(joined[0], node.seq), node.seq), Candidate(absent, Absent.name, why)
    return Extra(joined, stuck, own, tie=True, set_aside=(aside,))


def unseen(aligned: Aligned) -> Finding | None:
    """Return the finding of ranks that left no usable record and that others wait for, those that most wait for first."""
    # Where nothing of a rank was collected, its silence proves nothing, unless all others were seen to wait for it.
    missing = not_collected(aligned.incident, aligned.stated)
    seen = {rank for rank, record in aligned.incident.ranks.items() if record.seen} - aligned.early
    alone = missing if len(missing) == 1 and missing | seen == aligned.incident.ranks.keys() else frozenset()
    excused = (missing - alone) | aligned.early
    roots = [r for r in aligned.roots("unseen") if not excused.issuperset(r.ranks)]
    most = max((len(r.explains) for r in roots), default=0)
    named = tuple(sorted({rank for r in roots if len(r.explains) == most for rank in r.ranks}))
    node = aligned.first_instance(named)
    if node is None:
        return None
    others = sorted({rank for root in roots for rank in root.ranks} - set(named))
    why = "fewer blocked ranks are waiting for it"
    finding = Unseen(
        named,
        aligned.stuck_in(node, named),
        guess=not alone.isdisjoint(named),
        set_aside=tuple(Candidate((rank,), Unseen.name, why) for rank in others),
    )
    return aligned.reached_by(finding)
