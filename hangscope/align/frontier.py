"""How far every member of a group is known to have come.

For each member of a group: the last collective it enqueued, which are pending, and what is unknown and why. All seqs are
`collective_seq_id`, counted from 1 per group.
"""

from __future__ import annotations

from dataclasses import field
from functools import cache, cached_property

import numpy as np

from hangscope.align.divergence import common_window, differences
from hangscope.align.matching import hard_keys, match_key
from hangscope.align.member import Member, member_of
from hangscope.align.p2p import outrun
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import PROVING_OPS, CallKind, Group, Incident, State
from hangscope.model.kinds import Kinds

_MOST_PENDING = 256  # pending collectives of one member that are listed; it is blocked in the first


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
            sure = self.proving[queue.kind] & (over | (queue.seq <= counted))
            last = max(last, int(queue.seq[sure].max(initial=0)))
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


def _set_stale_aside(views: list[GroupFrontier], outrun: set[int]) -> None:
    """Treat a rank with a stale dump as unseen in all its groups: it got further than its dump shows, and nobody knows how far.

    It is still blocked in a collective that a member with a later dump has not issued.
    """
    stale = outrun.union(*(view.early for view in views))
    seen = {rank for view in views for rank, member in view.members.items() if len(member.queue)}
    for view in views if 2 * len(stale) < len(seen) else ():
        for rank in stale.intersection(view.members):
            member = view.members[rank]
            if not _continues_in_text(member):
                fresh = (view.members[r].enqueued for r in view.seen if r not in stale)
                least = min((seq for seq in fresh if seq is not None), default=1 << 62)
                view.early.add(rank)
                member.pending = tuple(seq for seq in member.pending if seq > least)
                member.enqueued = member.pending[-1] if member.pending else None


def _continues_in_text(member: Member) -> bool:
    """Return whether a log line states collectives of a member after those of its dump: without a time, or as a number alone."""
    queue = member.queue
    counted = queue.frontier.started is None and (queue.frontier.enqueued or 0) > member.last_row
    untimed = len(queue) > 0 and not queue.created[-1] and (queue.told or bool(queue.created.any()))
    return counted or untimed


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
    agreed = min((m.enqueued for m in view.members.values() if m.enqueued is not None), default=0)
    agreed = min(
        [agreed, *(first + place - 1 for place in differences(columns.values(), hard_keys(view.kinds)))]
    )
    for member in logged:
        later = member.queue.seq[np.searchsorted(member.queue.seq, agreed + 1) :]
        member.unknown, member.pending = (), tuple(int(s) for s in later[:_MOST_PENDING])
