"""Who may have caused a freeze that names nobody for certain: where the chain of waits leaves what was collected."""

from __future__ import annotations

from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Finding, Lagging, Nothing, Stalled, Unseen


def suspects(aligned: Aligned, best: Finding) -> tuple[int, ...]:
    """Return the ranks one of which must be at fault, as far as calls tell; empty where nothing narrows it down."""
    if best.culprits and not (best.guess or best.assumed):
        return best.culprits
    found = {*best.culprits, *_beyond(aligned)}
    if not found and best.stuck.view is not None and isinstance(best, Lagging | Stalled):
        found = set(best.stuck.view.members)
    return tuple(sorted(found)) if len(found) < len(aligned.incident.ranks) else ()


def the_only_suspect(aligned: Aligned) -> Unseen | None:
    """Return the finding that the one rank is at fault to which the calls narrow it down, although nothing of it was collected."""
    found = suspects(aligned, Nothing())
    node = aligned.first_instance(found) if len(found) == 1 else None
    dumped = any(record.dump_file for record in aligned.incident.ranks.values())
    if node is None or not dumped or not aligned.early.isdisjoint(found):
        return None  # lines of some ranks do not tell who else there is
    if all(
        2 * len(root.explains) < len(aligned.waiting) for root in aligned.graph.roots if root.ranks == found
    ):
        return None  # others, of whom nothing was collected either, hold up the rest
    return aligned.reached_by(Unseen(found, aligned.stuck_in(node, found), guess=True))


def _beyond(aligned: Aligned) -> set[int]:
    """Return the ranks that were not seen and that most waiting ranks lead to, with those that they may wait for themselves.

    A rank that takes no message may be held up by the next one of its pipeline.
    """
    roots = aligned.roots("unseen")
    most = max((len(root.explains) for root in roots), default=0)
    found = {rank for root in roots if len(root.explains) == most for rank in root.ranks}
    unseen = {rank for root in roots for rank in root.ranks}
    for pair in aligned.graph.pairs:
        if not found.isdisjoint((pair.source, pair.destination)):
            found |= unseen.intersection(aligned.incident.groups[pair.gid].ranks)
    return found
