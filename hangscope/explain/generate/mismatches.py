"""Calls of one group that cannot match: which is the first, and whose side is the odd one."""

from __future__ import annotations

from hangscope.align.divergence import GroupHistory, Mismatch
from hangscope.align.waitgraph import Instance
from hangscope.explain.aligned import Aligned, reached_from
from hangscope.explain.finding import Change, Different, OwnCall, StuckCall
from hangscope.explain.generate.peer_groups import one_fault
from hangscope.knowledge.library import off_the_step, own_knowledge
from hangscope.model.incident import CallKind

_MOST_GROUPS = 64  # whose mismatches are compared


def first_mismatch(aligned: Aligned) -> Different | None:
    """Return the finding of the first calls that cannot match, or None."""
    found: list[tuple[int, int, Mismatch]] = []
    for gid, history in aligned.histories.items():
        mismatch = history.mismatch()
        if mismatch is not None:
            made = (history.view.created(rank, mismatch.seq) for side in mismatch.sides for rank in side)
            found.append((min(filter(None, made), default=0), gid, mismatch))
    found.sort(key=lambda f: f[:2])
    findings = [_finding(aligned, aligned.histories[gid], m) for _, gid, m in found[:_MOST_GROUPS]]
    return one_fault(aligned, findings[0], findings[1:]) if findings else None


def _finding(aligned: Aligned, history: GroupHistory, mismatch: Mismatch) -> Different:
    view, seq = history.view, mismatch.seq
    majority, *rest = mismatch.sides
    odd: tuple[int, ...] = tuple(r for side in rest for r in side)
    kinds: dict[int, CallKind] = {
        rank: kind for rank in (*majority, *odd) if (kind := view.kind_of(rank, seq)) is not None
    }
    # The largest side of those that were seen is not the majority where it is less than half of the group.
    outvoted = bool(view.unseen) and 2 * len(majority) < len(view.members)
    tie = outvoted or len(majority) == len(rest[0])
    if tie:
        even = [s for s in mismatch.sides if outvoted or len(s) == len(majority)]
        broken = history.odd_side(seq, even)
        if broken is None and len(even) == 2:
            stacks = [kinds[side[0]].stack if side[0] in kinds else () for side in even]
            off = off_the_step(stacks[0], stacks[1], own_knowledge())
            broken = even[off] if off is not None else None
        if broken is not None:
            tie, odd, majority = False, broken, next(s for s in mismatch.sides if s != broken)
    culprits = () if tie else tuple(sorted(odd))
    # A rank of which text alone tells has no lines: one that a recorder tells of shows where the call was made.
    waiting = next((r for r in majority if r in kinds and kinds[r].stack), majority[0])
    row = aligned.programs.of(waiting).row_of(view.group.gid, seq)
    change = Change(
        skipped=() if tie else tuple(history.skipped(odd[0], waiting, seq)),
        edit=history.edit_of(culprits),
        before=() if row is None else tuple(aligned.programs.before(waiting, row)),
    )
    members = set(view.group.ranks)
    stuck = StuckCall(view, seq, waiting, kinds.get(waiting), history)
    finding = Different(culprits, stuck, OwnCall(kinds.get(odd[0]), seq), change, tie=tie)
    behind = (
        root
        for root in aligned.graph.roots
        if not members.isdisjoint(root.ranks)
        or any(isinstance(n, Instance) and n.gid == view.group.gid for n in root.nodes)
    )
    return aligned.reached_by(finding, reached_from(behind) | members.intersection(aligned.waiting))
