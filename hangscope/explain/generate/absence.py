"""Members that others wait for: seen and not there, or not seen at all; and who may have caused a freeze that names nobody for certain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import chain

from hangscope.align.p2p import PairInstance
from hangscope.align.waitgraph import Called, Instance, Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import (
    Absent,
    Candidate,
    Extra,
    Finding,
    Lagging,
    Nothing,
    OwnCall,
    Stalled,
    Unseen,
)
from hangscope.explain.text.excerpt import not_collected
from hangscope.explain.text.group_size import others_of, stated_size


def seen_absent(aligned: Aligned) -> Finding | None:
    """Return the finding of ranks that were seen and wait for nobody, or of the few that make them look absent."""
    roots = aligned.roots("host")
    # A rank in a send or receive of gloo, which no recorder keeps, is a victim of one that waits for nobody.
    roots = [r for r in roots if not aligned.stated.inside.issuperset(r.ranks)] or roots
    hosts = tuple(sorted({rank for root in roots for rank in root.ranks}))
    node = aligned.first_instance(hosts)
    return aligned.reached_by(_absent_or_extra(aligned, hosts, node)) if node is not None else None


def _absent_or_extra(aligned: Aligned, hosts: tuple[int, ...], node: Called) -> Finding:
    """Ask whether those that wait issued a collective too many, rather than those that are absent one too few."""
    stuck, view, programs = aligned.stuck_in(node, hosts), aligned.views[node.gid], aligned.programs
    finding = Absent(hosts, stuck, aligned.last_call(hosts[0], view))
    if not isinstance(node, Instance):
        return finding
    absent = tuple(r for r in hosts if r in view.members)
    joined = tuple(r for r in view.seen if (view.members[r].enqueued or 0) >= node.seq)
    most = not joined or len(joined) > len(absent)
    if most or programs.keeps_pattern_at(joined[0], node.gid, node.seq):
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
    most, others = _awaited(r for r in aligned.roots("unseen") if not excused.issuperset(r.ranks))
    named = tuple(sorted(most))
    node = aligned.first_instance(named)
    if node is None:
        return None
    why = "fewer blocked ranks are waiting for it"
    aside = tuple(Candidate((rank,), Unseen.name, why) for rank in sorted(others))
    guess, stuck = not alone.isdisjoint(named), aligned.stuck_in(node, named)
    return aligned.reached_by(Unseen(named, stuck, guess=guess, set_aside=aside))


def _awaited(roots: Iterable[Root]) -> tuple[set[int], set[int]]:
    """Return the ranks of the roots that most waiting ranks lead to, and those of the others."""
    listed = list(roots)
    most = max((len(root.explains) for root in listed), default=0)
    first = {rank for root in listed if len(root.explains) == most for rank in root.ranks}
    return first, {rank for root in listed for rank in root.ranks} - first


def suspects(aligned: Aligned, best: Finding) -> tuple[int, ...]:
    """Return the ranks one of which must be at fault, as far as calls tell; empty where nothing narrows it down."""
    if best.culprits and not (best.guess or best.assumed):
        return best.culprits
    found = {*best.culprits, *_beyond(aligned)}
    size = stated_size(aligned.incident, aligned.stated) or 0
    dumped = any(record.dump_file for record in aligned.incident.ranks.values())
    if found and not dumped and size > aligned.incident.world_size:
        # Whoever printed nothing above the highest rank that did is as little known as those in the gaps below it.
        found = {*best.culprits, *others_of(size, aligned.stated.of_rank)}
    if not found and best.telling.view is not None and isinstance(best, Lagging | Stalled):
        alike = (root.ranks for root in aligned.roots("call") if isinstance(root.nodes[0], PairInstance))
        found = set(best.telling.view.members) if best.telling.pair is None else set(chain(*alike))
    return tuple(sorted(found)) if len(found) < max(len(aligned.incident.ranks), size) else ()


def _beyond(aligned: Aligned) -> set[int]:
    """Return the ranks that were not seen and that most waiting ranks lead to, with the next ones of a pipeline, which may hold them up."""
    found, others = _awaited(aligned.roots("unseen"))
    for pair in aligned.graph.pairs:
        if not found.isdisjoint((pair.source, pair.destination)):
            found |= others.intersection(aligned.incident.groups[pair.gid].ranks)
    return found


def the_only_suspect(aligned: Aligned) -> Unseen | None:
    """Return the finding that the one rank is at fault to which the calls narrow it down, although nothing of it was collected."""
    found = suspects(aligned, Nothing())
    node = aligned.first_instance(found) if len(found) == 1 else None
    dumped = any(record.dump_file for record in aligned.incident.ranks.values())
    if node is None or not dumped or not aligned.early.isdisjoint(found):
        return None  # lines of some ranks do not tell who else there is
    held = (len(root.explains) for root in aligned.graph.roots if root.ranks == found)
    if 2 * max(held, default=0) < len(aligned.waiting):
        return None  # others, of whom nothing was collected either, hold up the rest
    return aligned.reached_by(Unseen(found, aligned.stuck_in(node, found), guess=True))
