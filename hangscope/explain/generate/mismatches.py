"""What the members of a group do not agree on: the first collectives that cannot match, the root of one, or who the members are.

No recorder keeps the root of a gather or scatter, but only the root has a buffer for each member. A group's name counts the
groups that all ranks create, in order: members that list different ranks under one name mean different groups, which never form.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hangscope.align.divergence import Mismatch
from hangscope.align.divergence import first_mismatch as mismatch_of
from hangscope.align.edits import edit_between
from hangscope.align.frontier import GroupFrontier
from hangscope.align.matching import hard_keys, numel
from hangscope.align.program import Programs
from hangscope.align.waitgraph import Instance
from hangscope.explain.aligned import Aligned, nearest
from hangscope.explain.finding import Change, Different, OtherMembers, OtherRoot, OwnCall, StuckCall
from hangscope.explain.generate.deviation import change_between
from hangscope.explain.text.partitions import outlier_of_two
from hangscope.model.incident import CallKind

_GROUPS = 64  # whose mismatches are compared
_ROOTED = ("gather", "scatter")


def first_mismatch(aligned: Aligned) -> Different | None:
    """Return the finding of the first collectives that cannot match, or None."""
    keys, found = hard_keys(aligned.incident.kinds), list[tuple[int, int, Mismatch]]()
    for gid, view in aligned.views.items():
        if (mismatch := mismatch_of(view, keys)) is not None:
            made = (view.created(rank, mismatch.seq) for side in mismatch.partitions for rank in side)
            found.append((min(filter(None, made), default=0), gid, mismatch))
    found.sort(key=lambda f: f[:2])
    findings = [_finding(aligned, aligned.views[gid], mismatch) for _, gid, mismatch in found[:_GROUPS]]
    return aligned.of_one_fault(findings[0], findings[1:]) if findings else None


def _keeps_pattern(programs: Programs, side: Sequence[int], gid: int, seq: int) -> bool | None:
    """Return whether the first rank of a side whose history was recorded continues its own pattern at a seq; None where none was."""
    known = (programs.keeps_pattern_at(rank, gid, seq) for rank in side)
    return next((keeps for keeps in known if keeps is not None), None)


def _finding(aligned: Aligned, view: GroupFrontier, mismatch: Mismatch) -> Different:
    seq, programs, gid = mismatch.seq, aligned.programs, view.group.gid
    sides = mismatch.partitions  # the largest first
    majority, *rest = sides
    odd = tuple(r for side in rest for r in side)
    kinds = {rank: kind for rank in (*majority, *odd) if (kind := view.kind_of(rank, seq)) is not None}
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


def has_root_buffers(kind: CallKind) -> bool:
    """Return whether the caller of a gather or scatter is its root, by its buffers: one for each member, or one for all (ProcessGroupNCCL.cpp, Gloo.cpp)."""
    taken, given = sum(numel(kind.output_sizes)), sum(numel(kind.input_sizes))
    return taken > given if kind.op == "gather" else given > taken


def other_root(aligned: Aligned) -> OtherRoot | None:
    """Return the finding of the members of a pending gather or scatter that are its root for the first time, next to another root."""
    pending = [node for node in aligned.graph.edges if isinstance(node, Instance)]
    for node in sorted(pending, key=aligned.when):
        view, calls = aligned.views[node.gid], aligned.graph.calls_of(node)
        first = view.kind_of(calls[0][0], node.seq) if calls else None
        if first is None or first.op not in _ROOTED:
            continue
        kinds = {r: kind for r in view.seen if (kind := view.kind_of(r, node.seq)) is not None}
        roots = [r for r, kind in kinds.items() if kind.op in _ROOTED and has_root_buffers(kind)]
        new = [r for r in roots if _was_never_root(aligned, view, r, node.seq)]
        if 0 < len(new) < len(roots):
            usual = next(r for r in roots if r not in new)
            stuck = StuckCall(view, node.seq, usual, kinds[usual])
            return aligned.reached_by(OtherRoot(tuple(new), stuck, OwnCall(kinds[new[0]], node.seq)))
    return None


def _was_never_root(aligned: Aligned, view: GroupFrontier, rank: int, seq: int) -> bool:
    """Return whether a member made the same collective before, and never as its root."""
    queue, kinds = view.members[rank].queue, aligned.incident.kinds
    now = view.kind_of(rank, seq)
    before = [kinds[int(k)] for k in np.unique(queue.kind[queue.seq < seq])]
    alike = [kind for kind in before if now is not None and kind.op == now.op]
    return bool(alike) and not any(map(has_root_buffers, alike))


def other_members(aligned: Aligned) -> OtherMembers | None:
    """Return the finding of ranks that list other members of a group than its other members do, where no call of either group is complete."""
    groups = aligned.incident.groups
    dumped = [(r, record) for r, record in aligned.incident.ranks.items() if record.dump_file]
    by_name: dict[str, list[int]] = defaultdict(list)
    for group in groups:
        if group.name and group.members_known and not group.partial:
            by_name[group.name].append(group.gid)
    shapes = [kind[:3] for kind in aligned.programs.tokens.group_kinds]
    for gids in (gids for gids in by_name.values() if len(gids) == 2):
        members = [set(groups[gid].ranks) for gid in gids]
        listed = {gid: {r for r, record in dumped if gid in record.queues} for gid in gids}
        done = any(member.completed for gid in gids for member in aligned.views[gid].members.values())
        if done or not all(listed.values()):
            continue
        # The usual one has the shape of other groups, or else is listed by more ranks.
        rare, usual = sorted(gids, key=lambda gid: (shapes.count(shapes[gid]) > 1, len(listed[gid])))
        even = shapes.count(shapes[rare]) > 1 or shapes.count(shapes[usual]) < 2
        if even and len(listed[rare]) == len(listed[usual]):
            continue
        if set.intersection(*members).issuperset(listed[rare] | listed[usual]):
            own, everyone = tuple(sorted(listed[rare])), set.union(*members)
            node = aligned.first_instance(everyone)
            stuck = aligned.stuck_in(node, own) if node is not None else StuckCall(aligned.views[usual])
            return aligned.reached_by(OtherMembers(own, stuck, OwnCall(gid=rare)), everyone)
    return None
