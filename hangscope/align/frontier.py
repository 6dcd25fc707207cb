"""How far every member of a group is known to have come: what it enqueued (`collective_seq_id`, from 1), what is pending, what is unknown."""

from __future__ import annotations

from dataclasses import field
from functools import cache, cached_property

import numpy as np

from hangscope.align.divergence import common_window, differences
from hangscope.align.matching import hard_keys, match_key
from hangscope.align.p2p import outrun
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import PROVING_OPS, Absence, CallKind, Group, Incident, Queue, RankRecord, State
from hangscope.model.kinds import Kinds

_MOST_PENDING = 256  # pending collectives of one member that are listed; it is blocked in the first

#: Open calls that are listed of a rank without rows: more than any queue holds; a forged `pg_status` can claim any number.
MAX_OPEN = 4096
_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Member:
    """One rank's frontier on one group.

    `enqueued`: last seq it is known to have enqueued (None: not known); `completed`: last seq that its own dump proves
    complete; `pending`: seqs of its rows that are pending or started; `unknown`: seqs whose completion is unknown
    (gloo's last call); `first_row` and `last_row`: the window of its kept rows (0, 0: none).
    """

    rank: int
    queue: Queue
    enqueued: int | None = None
    completed: int | None = None
    pending: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    first_row: int = 0
    last_row: int = 0

    def row_of(self, seq: int) -> int | None:
        """Return the position of a seq among this member's rows, or None where no row was kept."""
        if not self.first_row <= seq <= self.last_row:
            return None
        position = int(np.searchsorted(self.queue.seq, seq))
        return position if position < len(self.queue) and int(self.queue.seq[position]) == seq else None


@dataclass
class GroupFrontier:
    """The frontiers of all members of one group, and what they prove about each other."""

    group: Group
    members: dict[int, Member]
    kinds: Kinds
    proving: np.ndarray  # by kind: whether one member's completion proves that all took part
    early: set[int] = field(default_factory=set)

    @cached_property
    def seen(self) -> list[int]:
        """Return the members whose frontier is known, ascending."""
        return [r for r, m in self.members.items() if m.enqueued is not None]

    @cached_property
    def unseen(self) -> list[int]:
        """Return the members whose frontier is not known, ascending."""
        return [r for r, m in self.members.items() if m.enqueued is None]

    def kind_of(self, rank: int, seq: int) -> CallKind | None:
        """Return what a rank issued at a seq, or None where no row was retained."""
        index = self.kind_index(rank, seq)
        return None if index is None else self.kinds[index]

    def kind_index(self, rank: int, seq: int) -> int | None:
        """Return the index of what a rank issued at a seq, or None where no row was retained, or the rank is no member."""
        member = self.members.get(rank)
        row = member.row_of(seq) if member is not None else None
        return None if member is None or row is None else int(member.queue.kind[row])

    def created(self, rank: int, seq: int) -> int:
        """Return the enqueue time of a rank's collective in ns, 0 where it is unknown."""
        row = self.members[rank].row_of(seq)
        return 0 if row is None else int(self.members[rank].queue.created[row])

    def completed(self, rank: int) -> int | None:
        """Return the last seq that a member completed, by its own record or by what its peers' completions prove."""
        member = self.members[rank]
        if member.completed is None or not member.unknown:
            return member.completed
        return max(member.completed, min(self.proven, member.enqueued or 0))

    @cached_property
    def proven(self) -> int:
        """Return the last seq in which every member is proven to have taken part."""
        # Of a seq that a member only counts, the rows of others show the op.
        done = (m.completed for m in self.members.values() if m.completed and m.row_of(m.completed) is None)
        counted = max(done, default=0)
        last = 0
        for member in self.members.values():
            queue = member.queue
            over = (queue.state == State.DONE) & (queue.seq < min(member.unknown, default=1 << 62))
            proof = queue.seq[self.proving[queue.kind] & (over | (queue.seq <= counted))]
            last = max(last, int(proof.max(initial=0)))
        return last

    def open_seqs(self, trouble: bool) -> dict[int, list[int]]:
        """Return for each seen member the seqs that are really pending, whatever a recorder says of their states.

        On gloo a retired last collective may be complete or failed, and a complete one may still read "scheduled": it is over where
        every member issued the same one and one of them retired it, or where peers' later collectives prove it. A retired one
        alone makes no unseen member a suspect, unless text reports `trouble`.
        """
        over = cache(lambda seq: self._over_on_gloo(seq, trouble))

        def is_open(member: Member, seq: int) -> bool:
            index = self.kind_index(member.rank, seq)
            kind = self.kinds.without_sizes(index) if index is not None else None
            if kind is None or kind.backend != "gloo":
                return True
            # A gather or a broadcast that another member completed proves nothing of this one.
            alone = seq in member.pending and kind.op not in PROVING_OPS
            return seq > self.proven and (alone or not over(seq))

        return {
            rank: sorted(seq for seq in (*member.pending, *member.unknown) if is_open(member, seq))
            for rank, member in self.members.items()
            if member.enqueued is not None or rank in self.early
        }

    def _over_on_gloo(self, seq: int, trouble: bool) -> bool:
        """Return whether every member issued the same collective at a seq, and one of them retired it."""
        seen = [self.members[rank] for rank in self.seen]
        if any((member.enqueued or 0) < seq for member in seen):
            return False
        if self.unseen and (trouble or any(seq in member.pending for member in seen)):
            return False
        kinds = (self.kind_of(member.rank, seq) for member in seen)
        alike = len({match_key(kind) for kind in kinds if kind is not None}) <= 1
        return alike and any(seq in member.unknown for member in seen)


def frontiers(incident: Incident) -> list[GroupFrontier]:
    """Return the frontiers of every group, by gid."""
    p2p_gids = {gid for record in incident.ranks.values() for gid in record.p2p}
    kinds = incident.kinds
    proving = np.array([kind.op in PROVING_OPS for kind in kinds.alone], dtype=bool)[kinds.plain]
    result = []
    for group in incident.groups:
        ranks, counts_p2p = sorted(group.ranks), group.gid in p2p_gids
        members = {rank: member_of(incident, group, rank, counts_p2p) for rank in ranks}
        view = GroupFrontier(group, members, kinds, proving)
        for rank, member in members.items():
            if member.enqueued is not None and member.enqueued < view.proven:
                view.early.add(rank)
                member.enqueued = None
        _find_pending_in_logs(view)
        result.append(view)
    _set_stale_aside(result, outrun(incident))
    return result


def member_of(incident: Incident, group: Group, rank: int, p2p_numbers: bool) -> Member:
    """Return how far a rank came on a group; `p2p_numbers`: the group's counters count sends and receives as well."""
    record = incident.ranks.get(rank) or RankRecord(rank, absence=Absence.NO_DUMP)
    nothing = Queue(rank, group.gid, _NONE, _NONE, _NONE, _NONE, _NONE)
    queue = record.queues.get(group.gid, nothing)
    member = Member(rank, queue)
    if not record.seen or (p2p_numbers and not len(queue)):
        return member
    if queue is nothing:
        # That the rank never called on this group is known only where its whole history was kept.
        queues = (*record.queues.values(), *record.p2p.values())
        if queues and not any(q.overwritten or q.pending_only for q in queues):
            member.enqueued = member.completed = 0
        return member
    counted, done = queue.frontier.enqueued or 0, queue.frontier.completed or 0
    # Counters that contradict each other count sends and receives, of which no row is left, with the collectives.
    p2p_numbers = p2p_numbers or done > (counted or done)
    trusted = not p2p_numbers
    if len(queue):
        member.first_row, member.last_row = int(queue.seq.min()), int(queue.seq.max())
        is_over = queue.state == State.DONE
        # After a failure it would have raised an error, and issued no collective of another group.
        went_on = any(len(q) and q.order[-1] > queue.order[-1] for q in record.queues.values())
        if queue.tells_completion and went_on:
            is_over |= queue.state == State.UNKNOWN
        rest = np.flatnonzero(~is_over)  # of most queues one row or none
        seqs, states = queue.seq[rest], queue.state[rest]
        member.pending = tuple(sorted(set(seqs[states <= State.STARTED].tolist())))
        member.unknown = tuple(seqs[states == State.UNKNOWN].tolist())
        over = queue.seq[is_over]
        member.completed = int(over[over < min(member.unknown, default=1 << 62)].max(initial=0))
        # gloo advances last_completed on errors too
        trusted = trusted and incident.kinds.without_sizes(int(queue.kind[0])).backend != "gloo"
    member.enqueued = max(member.last_row, 0 if p2p_numbers and len(queue) else counted)
    member.completed = max(member.completed or 0, done if trusted else 0)
    beyond = queue.told or member.last_row < counted
    lost = (trusted and queue.overwritten) or (beyond and not p2p_numbers)
    if lost and queue.frontier.completed is not None:
        # Of open calls that the ring was too short for, or that were made behind the rows, the counters are all that is left.
        since = range(done + 1, min(member.enqueued, done + MAX_OPEN) + 1)
        over = queue.seq[queue.state > State.STARTED]
        member.pending = tuple(sorted({*member.pending, *since}.difference(over.tolist())))
    if trusted:  # rows that a recorder left "scheduled" although later calls of the same stream completed
        member.pending = tuple(s for s in member.pending if s > member.completed)
    return member


def _set_stale_aside(views: list[GroupFrontier], outrun: set[int]) -> None:
    """Treat a rank with a stale dump as unseen in all its groups, but blocked in what a member with a later dump has not issued."""
    stale = outrun.union(*(view.early for view in views))
    seen = {rank for view in views for rank, member in view.members.items() if len(member.queue)}
    for view in views if 2 * len(stale) < len(seen) else ():
        for rank in stale.intersection(view.members):
            member, queue = view.members[rank], view.members[rank].queue
            # A log line states collectives after those of its dump: without a time, or as a number alone.
            counted = queue.frontier.started is None and (queue.frontier.enqueued or 0) > member.last_row
            untimed = len(queue) > 0 and not queue.created[-1] and (queue.told or queue.created.any())
            if not counted and not untimed:
                fresh = (view.members[r].enqueued for r in view.seen if r not in stale)
                least = min((seq for seq in fresh if seq is not None), default=1 << 62)
                view.early.add(rank)
                member.pending = tuple(seq for seq in member.pending if seq > least)
                member.enqueued = member.pending[-1] if member.pending else None


def _find_pending_in_logs(view: GroupFrontier) -> None:
    """Find the pending collectives of recorders that log no completion: those that not every known member issued alike.

    Those that all known members issued are assumed to be complete. A member whose log is cut off and that seems to be behind is
    unknown: its collectives may be among the lost lines.
    """
    logged = [m for m in view.members.values() if len(m.queue) and not m.queue.tells_completion]
    if not logged:
        return
    furthest = max(m.enqueued or 0 for m in view.members.values())
    for member in logged:
        if member.queue.cut and member.last_row < furthest:
            member.enqueued = None
    first, columns = common_window(logged)
    differing = [first + place for place in differences(columns.values(), hard_keys(view.kinds))[:1]]
    enqueued = [m.enqueued for m in view.members.values() if m.enqueued is not None]
    agreed = min([min(enqueued, default=0), *(seq - 1 for seq in differing)])
    for member in logged:
        later = member.queue.seq[np.searchsorted(member.queue.seq, agreed + 1) :]
        member.unknown, member.pending = (), tuple(int(s) for s in later[:_MOST_PENDING])
