"""How far every member of a group is known to have come.

For each member of a group: the last collective it enqueued, what of it is pending, and what is not known and why. All
seqs are `collective_seq_id`, counted from 1 per group.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property

import numpy as np

from hangscope.align.kind_keys import hard_keys
from hangscope.align.matching import proves_participation
from hangscope.dataclass import dataclass
from hangscope.incident import Absence, CallKind, Group, Incident, Kinds, Queue, State
from hangscope.knowledge.callsite import runs_backward

_OPEN_KEPT = 256  # open calls of one member that are looked at; the first is what it waits in
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

    @property
    def first_open(self) -> int | None:
        """Return the first seq that this member entered and is not known to have left."""
        return min((*self.pending, *self.unknown), default=None)

    def row_of(self, seq: int) -> int | None:
        """Return the position of a seq among this member's rows, or None where no row was kept."""
        if self.queue is None or not self.first_row <= seq <= self.last_row:
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
    calls_in_p2p_numbers: bool = False
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
        """Return what a rank called at a seq, or None where no row was kept."""
        index = self.kind_index(rank, seq)
        return None if index is None else self.kinds[index]

    def kind_index(self, rank: int, seq: int) -> int | None:
        """Return the index of what a rank called at a seq, or None where no row was kept."""
        member = self.members[rank]
        row = member.row_of(seq)
        if row is None or member.queue is None:
            return None
        return int(member.queue.kind[row])

    def created(self, rank: int, seq: int) -> int:
        """Return the enqueue time of a rank's call in ns, 0 where it is not known."""
        member = self.members[rank]
        row = member.row_of(seq)
        return 0 if row is None or member.queue is None else int(member.queue.created[row])

    def completed(self, rank: int) -> int | None:
        """Return the last call that a member completed; where its recorder does not tell, its peers may."""
        member = self.members[rank]
        if member.completed is None or not member.unknown:
            return member.completed
        return max(member.completed, min(self.proven, member.enqueued or 0))

    @cached_property
    def proven(self) -> int:
        """Return the last seq in which every member is proven to have taken part."""
        last = 0
        for member in self.members.values():
            if member.queue is not None and len(member.queue):
                sure = (member.queue.state == State.DONE) & self.proving[member.queue.kind]
                if member.unknown:
                    sure &= member.queue.seq < min(member.unknown)
                done = member.queue.seq[sure]
                last = max(last, int(done.max()) if len(done) else 0)
        for completed in sorted({m.completed for m in self.members.values() if m.completed}, reverse=True):
            if completed <= last:
                break
            last = max(last, self._proven_by_frontier(completed, last))
        return last

    def _proven_by_frontier(self, completed: int, floor: int) -> int:
        """Return the last seq up to `completed` whose op is known, from whoever kept its row, to prove participation."""
        for seq in range(completed, max(floor, completed - 64), -1):
            for rank in self.members:
                kind = self.kind_index(rank, seq)
                if kind is not None:
                    if self.proving[kind]:
                        return seq
                    break
        return floor

    @cached_property
    def has_rows(self) -> bool:
        """Return whether any member kept a row."""
        return any(m.queue is not None and len(m.queue) for m in self.members.values())


def frontiers(incident: Incident) -> list[GroupFrontier]:
    """Return the frontiers of every group, by gid."""
    p2p_gids = {gid for record in incident.ranks.values() for gid in record.p2p}
    kinds = incident.kinds
    proving = np.array([proves_participation(k) for k in kinds.alone], dtype=bool)[kinds.plain]
    result = []
    for group in incident.groups:
        view = GroupFrontier(group, {}, kinds, proving, calls_in_p2p_numbers=group.gid in p2p_gids)
        for rank in sorted(group.ranks):
            record = incident.ranks.get(rank)
            view.members[rank] = (
                _member(incident, group, rank, view.calls_in_p2p_numbers)
                if record
                else Member(rank, None, Absence.NO_DUMP)
            )
            if record is not None and record.absence is Absence.EARLY:
                view.early.add(rank)
        result.append(view)
    for view in result:
        _clear_the_early(view)
        if any(m.queue is not None and not m.queue.tells_completion for m in view.members.values()):
            _settle(view, hard_keys(incident.kinds))
    if not any(_is_stuck(view) for view in result):
        # Lines are printed before dumps are taken. Whoever waits has an open call in its dump: where no dump has one, and one
        # that timed out is proven over, the job went on.
        stated = [
            (view, member)
            for view in result
            for member in view.members.values()
            if member.queue is not None and member.queue.told
        ]
        dumps = sum(record.dump_file is not None for record in incident.ranks.values())
        went_on = dumps > 1 and any(s <= view.proven for view, m in stated for s in m.pending)
        for view, member in stated:
            member.pending = () if went_on else tuple(s for s in member.pending if s > view.proven)
    _clear_the_lagging(result)
    return result


def _clear_the_lagging(views: list[GroupFrontier]) -> None:
    """Where every open call of the job is proven to be over, the dumps that show it open are merely older than the others."""
    open_on = [(view, member) for view in views for member in view.members.values() if member.pending]
    if not open_on or not all(member.pending[-1] <= view.proven for view, member in open_on):
        return
    for view, member in open_on:
        view.early.add(member.rank)
        member.pending = ()


def _is_stuck(view: GroupFrontier) -> bool:
    """Return whether a dump shows an open call on this group."""
    return any(m.pending and m.queue is not None and not m.queue.told for m in view.members.values())


def _member(incident: Incident, group: Group, rank: int, p2p_numbers: bool) -> Member:
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
        if group.gid in record.p2p and not p2p_numbers:
            member.enqueued = None
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
    if member.completed:
        # Rows that a recorder left "scheduled" although later calls of the same stream completed.
        member.pending = (
            tuple(s for s in member.pending if s > member.completed) if trusted else member.pending
        )
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


def _settle(view: GroupFrontier, keys: np.ndarray) -> None:
    """Tell which calls of recorders that log no completion are open: those that not every known member made alike.

    What all known members made is taken to be over; that it is, nobody recorded. A member whose log is cut and that
    seems to be behind is not known: its calls may be among the lost lines.
    """
    logged = {
        r: m
        for r, m in view.members.items()
        if m.queue is not None and len(m.queue) and not m.queue.tells_completion
    }
    furthest = max((m.enqueued for m in view.members.values() if m.enqueued is not None), default=0)
    for member in logged.values():
        if member.queue is not None and member.queue.cut and member.last_row < furthest:
            member.enqueued = None
    agreed = min((m.enqueued for m in view.members.values() if m.enqueued is not None), default=0)
    start = max((m.first_row for m in logged.values()), default=1)
    reference: np.ndarray | None = None
    for member in logged.values():
        assert member.queue is not None
        low, high = np.searchsorted(member.queue.seq, (start, agreed + 1))
        made = keys[member.queue.kind[low:high]]
        reference = made if reference is None else reference
        shared = min(len(made), len(reference))
        differ = np.flatnonzero(made[:shared] != reference[:shared])
        agreed = min(agreed, start + int(differ[0]) - 1) if len(differ) else agreed
    for member in logged.values():
        assert member.queue is not None
        later = member.queue.seq[np.searchsorted(member.queue.seq, agreed + 1) :]
        member.unknown, member.pending = (), tuple(int(s) for s in later[:_OPEN_KEPT])
    view.__dict__.pop("seen", None)
    view.__dict__.pop("unseen", None)


def _clear_the_early(view: GroupFrontier) -> None:
    """Mark members whose dump is older than what peers' completions prove: they are further than their dump shows."""
    for rank, member in view.members.items():
        if member.enqueued is not None and member.enqueued < view.proven:
            view.early.add(rank)
            member.absence = Absence.EARLY
            member.enqueued = None
    view.__dict__.pop("seen", None)
    view.__dict__.pop("unseen", None)
