"""How far one member of a group is known to have come, by its own rows and counters."""

from __future__ import annotations

import numpy as np

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Absence, Group, Incident, Queue, RankRecord, State

#: Open calls that are listed of a rank without rows: more than any queue holds; a forged `pg_status` can claim any number.
MAX_OPEN = 4096
_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class Member:
    """One rank's frontier on one group.

    `enqueued`: last seq it is known to have enqueued (None: not known); `completed`: last seq that its own dump proves
    complete; `pending`: seqs of its rows that are pending or started; `unknown`: seqs whose completion cannot be told
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
        if queue.tells_completion and _went_on(record, queue):
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


def _went_on(record: RankRecord, queue: Queue) -> bool:
    """Return whether a rank issued collectives of another group after the last one of a queue, whose failure would have raised an error."""
    last = int(queue.order[-1])
    return any(len(other) and int(other.order[-1]) > last for other in record.queues.values())
