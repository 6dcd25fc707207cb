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
from hangscope.align.member import Member, member_of
from hangscope.dataclass import dataclass
from hangscope.incident import Absence, CallKind, Group, Incident, Kinds, State

_OPEN_KEPT = 256  # open calls of one member that are looked at; the first is what it waits in


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
        # What a member only counts, others' rows tell the op of.
        done = (m.completed for m in self.members.values() if m.completed and m.row_of(m.completed) is None)
        counted = max(done, default=0)
        last = 0
        for member in self.members.values():
            if member.queue is not None and len(member.queue):
                over = (member.queue.state == State.DONE) & (
                    member.queue.seq < min(member.unknown, default=1 << 62)
                )
                sure = self.proving[member.queue.kind] & (over | (member.queue.seq <= counted))
                last = max(last, int(member.queue.seq[sure].max(initial=0)))
        return last

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
                member_of(incident, group, rank, view.calls_in_p2p_numbers)
                if record
                else Member(rank, None, Absence.NO_DUMP)
            )
        result.append(view)
    for view in result:
        _clear_the_early(view)
        if any(m.queue is not None and not m.queue.tells_completion for m in view.members.values()):
            _settle(view, hard_keys(incident.kinds))
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
