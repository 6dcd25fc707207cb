"""Members that others wait for: seen and not there, or not seen at all."""

from __future__ import annotations

from dataclasses import replace

from hangscope.align.waitgraph import Called, Instance
from hangscope.explain.aligned import Aligned, reached_from
from hangscope.explain.finding import Absent, Candidate, Extra, Finding, OwnCall, Unseen
from hangscope.explain.text.excerpt import not_collected


def seen_absent(aligned: Aligned) -> Finding | None:
    """Return the finding of hosts that were seen and wait for nobody, or of the few who made them look absent."""
    roots = aligned.roots("host")
    # Who waits in a send or receive of gloo's, which no recorder keeps, is a victim of one that waits for nobody.
    roots = [r for r in roots if not aligned.stated.inside.issuperset(r.ranks)] or roots
    hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
    node = aligned.first_instance(hosts)
    if node is None:
        return None
    return aligned.reached_by(_outlier(aligned, hosts, node), reached_from(roots))


def _outlier(aligned: Aligned, hosts: tuple[int, ...], node: Called) -> Finding:
    """Ask whether those who wait made a call too many, rather than those who are absent one too few."""
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
    # Those who wait nowhere are busy, and may come to the call yet.
    why = "they are the majority: the few blocked ranks may have issued an extra collective"
    own, aside = OwnCall(view.kind_of(joined[0], node.seq), node.seq), Candidate(absent, Absent.name, why)
    return Extra(joined, stuck, own, tie=True, set_aside=(aside,))


def unseen(aligned: Aligned) -> Finding | None:
    """Return the finding of ranks that left no usable record and that others wait for."""
    # Where nothing of a rank was collected, its silence accuses nobody, unless all others were seen to wait for it.
    missing = not_collected(aligned.incident, aligned.stated)
    seen = {rank for rank, record in aligned.incident.ranks.items() if record.seen} - aligned.early
    alone = missing if len(missing) == 1 and missing | seen == aligned.incident.ranks.keys() else frozenset()
    excused = (missing - alone) | aligned.early
    witnesses = aligned.stated.witnesses
    all_roots = [r for r in aligned.roots("unseen") if not excused.issuperset(r.ranks)]
    # A rank that lost a peer or timed out itself was waiting, although no dump of it shows where.
    roots = [r for r in all_roots if not witnesses.issuperset(r.ranks)] or all_roots
    # Where several ranks are unseen, those that more waiting ranks lead to come first.
    most = max((len(r.explains) for r in roots), default=0)
    named = tuple(sorted({rank for r in roots if len(r.explains) == most for rank in r.ranks}))
    node = aligned.first_instance(named)
    if node is None:
        return None
    others = sorted({rank for root in all_roots for rank in root.ranks} - set(named))
    waited = witnesses.intersection(others)
    finding = aligned.reached_by(Unseen(named, aligned.stuck_in(node, named)), reached_from(all_roots))
    reasons = {True: "its own log shows it blocked", False: "fewer blocked ranks are waiting for it"}
    return replace(
        finding,
        guess=not alone.isdisjoint(named),
        waiting=tuple(sorted({*finding.waiting, *waited})),
        reached=finding.reached | waited,
        set_aside=tuple(Candidate((rank,), Unseen.name, reasons[rank in waited]) for rank in others),
    )
