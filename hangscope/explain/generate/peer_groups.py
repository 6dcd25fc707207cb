"""The same fault in several groups that run the same program side by side.

In a grid of ranks the groups of one dimension (all data-parallel pairs, say) make the same calls. What ranks of one
replica do together (its tensor-parallel ranks, say) is one fault, though each of its groups shows a part of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import AnyFinding, Finding
from hangscope.model.incident import Group


def one_fault(aligned: Aligned, first: AnyFinding, others: Iterable[Finding]) -> AnyFinding:
    """Return a finding with the culprits of those among `others` that show the same calls in a group of the same dimension."""
    view, calls = first.stuck.view, (first.own.kind, first.stuck.kind)
    if view is None or not first.culprits:
        return first
    alike = [
        other
        for other in others
        if other.culprits
        and other.stuck.view is not None
        and (other.own.kind, other.stuck.kind) == calls
        and (other.stuck.view is view or _alike(other.stuck.view.group, view.group))
    ]
    named = {*first.culprits, *(rank for other in alike for rank in other.culprits)}
    if 2 * len(named) > len(aligned.incident.ranks):
        return first
    reached = first.reached.union(*(other.reached for other in alike))
    return aligned.reached_by(replace(first, culprits=tuple(sorted(named))), reached)


def _alike(one: Group, other: Group) -> bool:
    """Return whether two groups are of one dimension: equal size and description, and no common member."""
    return (len(one.ranks), one.desc) == (len(other.ranks), other.desc) and set(one.ranks).isdisjoint(
        other.ranks
    )
