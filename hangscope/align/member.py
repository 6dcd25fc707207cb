"""How far one member of a group is known to have come, by its own rows and counters."""

from __future__ import annotations

import numpy as np

from hangscope.dataclass import dataclass
from hangscope.incident import Absence, Group, Incident, Kinds, Queue, State
from hangscope.knowledge.callsite import runs_backward

#: Open calls that are listed of a rank without rows: more than any queue holds; a forged `pg_status` can claim any number.
MAX_OPEN = 4096


@dataclass(slots=True)
class Member:
    """One rank's frontier on one group.

    `enqueued`: last seq it is known to have enqueued (None: not known); `completed`: last seq that its own dump proves
    complete; `pending`: seqs of its rows that are pending or started; `unknown`: seqs whose completion cannot be told
    (gloo's last call); `first_row` and `last_row`: the window of its kept rows (0, 0: none).
    """

    rank: int
    queue: Queue | None
    absence: Absence | None
    enqueued: int | None = None
    completed: int | None = None
    pending: tuple[int, ...] = ()
    unknown: tuple[int, ...] = ()
    first_row: int = 0
    last_row: int = 0

    def row_of(self, seq: int) -> int | None:
        """Return the position of a seq among this member's rows, or None where no row was kept."""
        if self.queue is None or not self.first_row <= seq <= self.last_row:
            return None
        position = int(np.searchsorted(self.queue.seq, seq))
        return position if position < len(self.queue) and int(self.queue.seq[position]) == seq else None


def member_of(incident: Incident, group: Group, rank: int, p2p_numbers: bool) -> Member:
    """Return how far a rank came on a group; `p2p_numbers`: the group's counters count sends and receives as well."""
    record = incident.ranks[rank]
    queue = record.queues.get(group.gid)
    member = Member(rank, queue, record.absence)
    if not record.seen:
        return member
    if queue is None or (not len(queue) and p2p_numbers):
        # No row on this group. That the rank never called is known only where its whole history was kept.
        whole = bool(record.queues or record.p2p) and not any(
            q.overwritten or q.pending_only for q in (*record.queues.values(), *record.p2p.values())
        )
        member.enqueued = member.completed = 0 if whole and not p2p_numbers else None
        return member
    frontier = queue.frontier
    # Counters that contradict each other count sends and receives, of which no row is left, with the collectives.
    p2p_numbers = p2p_numbers or (frontier.completed or 0) > (frontier.enqueued or frontier.completed or 0)
    last_done = 0
    if len(queue):
        member.first_row, member.last_row = int(queue.seq.min()), int(queue.seq.max())
        rest = np.flatnonzero(queue.state != State.DONE)  # most queues have one such row or none
        states = queue.state[rest]
        member.pending = tuple(sorted(set(queue.seq[rest[states <= State.STARTED]].tolist())))
        member.unknown = _unknown(incident.kinds, queue, queue.seq[rest[states == State.UNKNOWN]].tolist())
        done = queue.seq[queue.state == State.DONE]
        last_done = (
            int(done[done < min(member.unknown, default=1 << 62)].max(initial=0))
            if len(rest)
            else member.last_row
        )
    backend = incident.kinds.without_sizes(int(queue.kind[0])).backend if len(queue) else ""
    trusted = backend != "gloo" and not p2p_numbers  # gloo advances last_completed on errors too
    member.enqueued = max(
        member.last_row, (frontier.enqueued or 0) if not p2p_numbers or not len(queue) else 0
    )
    member.completed = max(last_done, (frontier.completed or 0) if trusted else 0)
    if (
        (not len(queue) or (not p2p_numbers and (queue.told or member.last_row < (frontier.enqueued or 0))))
        and frontier.completed is not None
        and frontier.enqueued is not None
        and frontier.completed < frontier.enqueued
    ):
        counted = range(frontier.completed + 1, min(frontier.enqueued, frontier.completed + MAX_OPEN) + 1)
        rows = set(queue.seq.tolist()) if len(queue) and not queue.told else set()
        member.pending = tuple(sorted({*member.pending, *(s for s in counted if s not in rows)}))
    if queue.overwritten and trusted and frontier.completed is not None:
        # The ring was too short for all that is open: what the counters tell of its oldest calls is all that is left of them.
        lost = range(max(member.completed + 1, member.first_row - MAX_OPEN), member.first_row)
        member.pending = (*lost, *member.pending)
    if trusted:  # rows that a recorder left "scheduled" although later calls of the same stream completed
        member.pending = tuple(s for s in member.pending if s > member.completed)
    return member


def _unknown(kinds: Kinds, queue: Queue, retired: list[int]) -> tuple[int, ...]:
    """Return the seqs of which gloo does not tell whether they are done: the last one, and those begun with it.

    A backward pass starts its reductions without waiting for one another, so that all of them fail together.
    """
    last = len(queue) - 1
    if not retired or int(queue.seq[last]) != retired[-1]:
        return tuple(retired)
    stack = kinds.without_sizes(int(queue.kind[last])).stack
    row, begun = last, {int(queue.kind[last])}  # a bucket that comes again is of the pass before
    while row > 0 and stack and runs_backward(kinds.without_sizes(int(queue.kind[row]))):
        before = kinds.without_sizes(int(queue.kind[row - 1]))
        if before.stack != stack or queue.state[row - 1] != State.DONE or int(queue.kind[row - 1]) in begun:
            break
        row -= 1
        begun.add(int(queue.kind[row]))
    return tuple(sorted({*retired, *queue.seq[row:last].tolist()}))
