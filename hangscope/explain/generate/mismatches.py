"""Collectives of one group that cannot match: which are the first, and which members deviate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hangscope.align.divergence import Mismatch
from hangscope.align.divergence import first_mismatch as mismatch_of
from hangscope.align.edits import edit_between
from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import hard_keys
from hangscope.align.program import Programs
from hangscope.explain.aligned import Aligned, nearest
from hangscope.explain.finding import Change, Different, OwnCall, StuckCall
from hangscope.explain.generate.deviation import change_between
from hangscope.explain.text.partitions import outlier_of_two
from hangscope.model.incident import CallKind

_GROUPS = 64  # whose mismatches are compared


def first_mismatch(aligned: Aligned) -> Different | None:
    """Return the finding of the first collectives that cannot match, or None."""
    found: list[tuple[int, int, Mismatch]] = []
    keys = hard_keys(aligned.incident.kinds)
    for gid, view in aligned.views.items():
        if (mismatch := mismatch_of(view, keys)) is not None:
            made = (view.created(rank, mismatch.seq) for side in mismatch.partitions for rank in side)
            found.append((min(filter(None, made), default=0), gid, mismatch))
    if not found:
        return None
    found.sort(key=lambda f: f[:2])
    first, *others = [_finding(aligned, aligned.views[gid], mismatch) for _, gid, mismatch in found[:_GROUPS]]
    return aligned.of_one_fault(first, others)


def _keeps_pattern(programs: Programs, side: Sequence[int], gid: int, seq: int) -> bool | None:
    """Return whether the first rank of a side whose history was recorded continues its own pattern at a seq; None where none was."""
    known = (programs.keeps_pattern(rank, programs.row_at(rank, gid, seq)) for rank in side)
    return next((keeps for keeps in known if keeps is not None), None)


def _finding(aligned: Aligned, view: GroupFrontier, mismatch: Mismatch) -> Different:
    seq, programs, gid = mismatch.seq, aligned.programs, view.group.gid
    sides = sorted((tuple(side) for side in mismatch.partitions), key=len, reverse=True)
    majority, *rest = sides
    odd: tuple[int, ...] = tuple(r for side in rest for r in side)
    kinds: dict[int, CallKind] = {
        rank: kind for rank in (*majority, *odd) if (kind := view.kind_of(rank, seq)) is not None
    }
    # The largest side of those that were seen is not the majority where it is less than half of the group.
    outvoted = bool(view.unseen) and 2 * len(majority) < len(view.members)
    tie, guess = outvoted or len(majority) == len(rest[0]), False
    if tie:
        even = [s for s in sides if outvoted or len(s) == len(majority)]
        keeping = [_keeps_pattern(programs, side, gid, seq) for side in even]
        broken = even[keeping.index(False)] if keeping.count(False) == 1 and any(keeping) else None
        odd_ones = {o.ranks for o in aligned.stated.outlier_lines if o.decides}
        if len(named := [side for side in even if side in odd_ones]) == 1:
            broken = named[0]  # the others of the job printed what the other side did
        if broken is None and len(even) == 2:
            off = outlier_of_two(even, kinds, aligned.stated)
            broken = even[off] if off is not None else None
        if broken is not None:
            tie, odd, majority = False, broken, next(s for s in sides if s != broken)
        elif len(majority) > len(odd):
            tie, guess = False, True  # more of those that were seen
    culprits = () if tie else tuple(sorted(odd))
    # A rank of which text alone tells has no lines: one that a recorder tells of shows where the call was made.
    framed = [r for r in majority if r in kinds and kinds[r].stack] or majority[:1]
    waiting = nearest(view, seq, framed, kinds.get(odd[0]))
    at, there = (programs.row_at(rank, gid, seq) for rank in (odd[0], waiting))
    change = Change()
    if not tie and at is not None and there is not None:
        own, peers = (np.array(programs.of(rank).tokens) for rank in (odd[0], waiting))
        edit = edit_between(own, at, peers, there, alike=False)
        change = change_between(programs, (odd[0], at), (waiting, there), edit)
    next_own, next_peer = (view.kind_of(rank, seq + 1) for rank in (odd[0], waiting))
    if not tie and next_own is not None and (next_own, next_peer) == (kinds.get(waiting), kinds.get(odd[0])):
        # also where two threads issue them, of which a rank's program has one
        change = replace(change, swapped=True, skipped=(next_own,), added=(), shift=0)
    stuck = StuckCall(view, seq, waiting, kinds.get(waiting), programs.before(waiting, there))
    finding = Different(culprits, stuck, OwnCall(kinds.get(odd[0]), seq), change, tie=tie, guess=guess)
    return aligned.reached_by(finding, view.members)
