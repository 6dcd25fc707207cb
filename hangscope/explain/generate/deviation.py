"""Ranks whose program parts from that of the ranks with their role, as findings: what they added, left out, swapped or replaced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hangscope.align.counters import Contradiction
from hangscope.align.edits import Edit, How
from hangscope.align.fold import Deviation, fold
from hangscope.align.p2p import PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import Called, Instance
from hangscope.explain.aligned import Aligned, nearest
from hangscope.explain.finding import Change, Different, OwnCall, StuckCall, Unpaired
from hangscope.model.incident import State

UNLIKE_BEHIND = 2  # calls behind one edit that may differ all the same: a handler's, after a timeout
BEFORE_THE_END = 64  # calls of a log that does not tell which of them are over


def deviating(aligned: Aligned) -> Different | Unpaired | None:
    """Return the finding of the first ranks that part from what those of their role agree on, if that can have frozen the job."""
    open_on = {node.gid for node in aligned.graph.edges if isinstance(node, Called)}
    found = [d for d in fold(aligned.incident, aligned.programs) if _is_whole(aligned, d)]
    found = [d for d in found if _can_freeze(aligned, d, open_on)]
    if not found:
        return next(filter(None, (_by_counts(aligned, c) for c in aligned.contradictions)), None)
    own = {d.ranks: aligned.programs.call(d.ranks[0], d.row) for d in found}
    first = min(found, key=lambda d: (own[d.ranks][3], -d.votes, d.ranks))
    alike = [d for d in found if own[d.ranks][:2] == own[first.ranks][:2]]
    culprits = tuple(sorted(rank for d in alike for rank in d.ranks))
    circles = (c for c in aligned.roots("cycle") if c.explains.union(c.ranks).issuperset(culprits))
    finding = replace(_finding(aligned, first, culprits), circle=next(circles, None))
    if not aligned.waiting:  # recorders that tell of no end of a call
        members = {*finding.stuck.view.members, *culprits} if finding.stuck.view is not None else set()
        waiting = tuple(sorted(members.difference(culprits)))
        return replace(finding, waiting=waiting, reached=frozenset(waiting))
    return aligned.reached_by(finding)


def _by_counts(aligned: Aligned, found: Contradiction) -> Different | None:
    """Return the finding of ranks whose counts contradict those of their peers, if a call is open where they are behind."""
    kinds, rank = aligned.programs.tokens.group_kinds, found.ranks[0]
    own_groups = {g.gid for g in aligned.incident.groups if kinds[g.gid] == found.behind and rank in g.ranks}
    awaited = [n for n in aligned.graph.edges if isinstance(n, Instance) and n.gid in own_groups]
    calls = aligned.graph.open_calls.get(rank)
    if not awaited or not calls:
        return None
    node, pending = min(awaited, key=aligned.when), calls[0]
    stuck = aligned.stuck_in(node, found.ranks)
    skipped = (stuck.kind,) if stuck.kind is not None else ()
    elsewhere = node.gid != pending.gid
    change = Change(skipped=skipped, votes=len(found.peers), last_word=True, elsewhere=elsewhere)
    return aligned.reached_by(Different(found.ranks, stuck, OwnCall(gid=pending.gid), change))


def _is_whole(aligned: Aligned, d: Deviation) -> bool:
    """Return whether one edit makes the programs match; of a call in place of another, whether most of its group were seen to agree."""
    if d.edit.left > UNLIKE_BEHIND:
        return False
    if d.edit.how is not How.REPLACED or d.edit.matched > 1 or not d.votes:
        return True
    gid, seq = aligned.programs.call(d.peer, d.peer_row)[:2]
    members, view = aligned.incident.groups[gid].ranks, aligned.views[gid]
    there = sum(view.kind_of(rank, seq) is not None for rank in members if rank not in d.ranks)
    return 2 * max(d.votes, there) >= len(members)


def _groups(aligned: Aligned, d: Deviation) -> list[int]:
    """Return the deviating rank's groups that the edit is about: a call of a peer's own group is taken for the rank's group of that kind."""
    groups, rank, kinds = aligned.incident.groups, d.ranks[0], aligned.programs.tokens.group_kinds
    found = [aligned.programs.call(rank, row)[0] for row in d.edit.own]
    for gid in {aligned.programs.call(d.peer, row)[0] for row in d.edit.peers}:
        found += [g.gid for g in groups if rank in g.ranks and kinds[g.gid] == kinds[gid]]
    return list(dict.fromkeys(found))


def _can_freeze(aligned: Aligned, d: Deviation, open_on: set[int]) -> bool:
    """Return whether a call is open on a group that the edit is about, and of swapped calls one of the rank's own."""
    program, record = aligned.programs.of(d.ranks[0]), aligned.incident.ranks[d.ranks[0]]
    queues = (*record.queues.values(), *record.p2p.values())
    if not any(queue.tells_completion for queue in queues):
        unsent = any(aligned.missing_half(node) in d.ranks for node in aligned.graph.pairs)
        return unsent or len(program.tokens) - d.row <= BEFORE_THE_END
    if open_on.isdisjoint(_groups(aligned, d)):
        return False
    if d.edit.how is not How.SWAPPED:
        return True
    orders = program.order[list(d.edit.own)]
    pending = (q.order[q.state != State.DONE] for q in queues)
    return any(np.isin(orders, own).any() for own in pending)


def _finding(aligned: Aligned, d: Deviation, culprits: tuple[int, ...]) -> Different | Unpaired:
    programs, rank = aligned.programs, d.ranks[0]
    gid, seq, kind, _ = programs.call(rank, d.row)
    stuck = _stuck(aligned, d, culprits)
    elsewhere = stuck.view is not None and stuck.view.group.gid != gid
    change = change_between(programs, (rank, d.row), (d.peer, d.peer_row), d.edit)
    left_out = {programs.call(d.peer, row)[0] for row in d.edit.peers}
    change = replace(change, votes=d.votes, elsewhere=elsewhere, of_one_group=len(left_out) < 2)
    own = OwnCall(kind, seq, gid if elsewhere else None)
    kinds = (*programs.kinds(d.peer, d.edit.peers), *programs.kinds(rank, d.edit.own))
    older = change.shift and not (change.skipped or change.added)
    if older or change.swapped or not all(kind.is_p2p for kind in kinds):
        return Different(culprits, stuck, own, change)
    missing = [node for node in aligned.graph.pairs if aligned.missing_half(node) in culprits]
    waiting = [calls[0].node for r in culprits if (calls := aligned.graph.open_calls.get(r))]
    halves = missing or [node for node in waiting if isinstance(node, PairInstance)]
    if halves:
        stuck = aligned.stuck_in(min(halves, key=aligned.when), culprits)
    return Unpaired(culprits, stuck, own, change)


def change_between(programs: Programs, own: tuple[int, int], peer: tuple[int, int], edit: Edit) -> Change:
    """Return how a rank's program becomes that of its peer again, each given by the rank and its row at the difference.

    If nothing after the difference was recorded, only the rank's own pattern shows what it skipped; if nothing before it was
    retained, the calls that were skipped or added are older.
    """
    (rank, row), incident = own, programs.incident
    last_word = row == len(programs.of(rank).tokens) - 1
    if last_word and edit.how is not How.SWAPPED:
        return Change(skipped=programs.kinds(rank, programs.left_out(*own, *peer)), last_word=True)
    # A stretch of calls in place of one is extra as well.
    extra = edit.how is How.ADDED or (edit.how is How.REPLACED and len(edit.own) > 1)
    older = row == 0 and any(queue.overwritten for queue in incident.ranks[rank].queues.values())
    missing = edit.how in (How.LEFT_OUT, How.SWAPPED)
    skipped = programs.kinds(peer[0], edit.peers) if missing and not older else ()
    added = programs.kinds(rank, edit.own) if extra and not older else ()
    shift, swapped = len(edit.own) - len(edit.peers), edit.how is How.SWAPPED
    return Change(skipped, added, shift, swapped, edit.matched, last_word=last_word)


def _stuck(aligned: Aligned, d: Deviation, culprits: tuple[int, ...]) -> StuckCall:
    """Return what the agreeing ranks called at the difference, of one that shares the group with those that deviate if one does."""
    peer, row = d.peer, d.peer_row
    position = aligned.programs.of(peer).order[row]
    kinds = aligned.programs.tokens.group_kinds
    kind = kinds[aligned.programs.call(peer, row)[0]]
    groups = (aligned.incident.groups[gid] for gid in _groups(aligned, d))
    members = [r for group in groups if kinds[group.gid] == kind for r in group.ranks]
    for other in members:
        if other in culprits or not aligned.incident.ranks[other].seen:
            continue
        program = aligned.programs.of(other)
        (found,) = np.nonzero(program.order == position)
        if found.size and kinds[int(program.gid[found[0]])] == kind:
            peer, row = other, int(found[0])
            break
    gid, seq, call, _ = aligned.programs.call(peer, row)
    view, programs = aligned.views[gid], aligned.programs
    if call.is_p2p:
        return StuckCall(view, seq, peer, call, programs.before(peer, row))
    issued = ((r, view.kind_of(r, seq)) for r in view.seen if r not in culprits and r != peer)
    alike = [r for r, kind in issued if kind is not None and kind.op == call.op]
    peer = nearest(view, seq, [peer, *alike], view.kind_of(culprits[0], seq))
    before = programs.before(peer, programs.row_at(peer, gid, seq))
    return StuckCall(view, seq, peer, view.kind_of(peer, seq) or call, before)
