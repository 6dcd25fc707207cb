"""Sends and receives that only log lines state, completed from the dump of a rank at the same place of another pipeline.

A watchdog's line states the op and the seq of a send, but neither its peer nor whether it was issued before the collectives of other
groups that timed out as well. Ranks at one position of their pipelines issue the same calls: the dump of one of them has both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

import numpy as np

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Frontier, Group, Incident, Queue, State

Stated = tuple[int, int, str]  #: gid, seq and op of a call that a line states
_SENDS = ("send", "recv")


@dataclass(frozen=True, slots=True)
class Counterpart:
    """A rank at the same place of another pipeline, with the queue and the row of each call that was looked for."""

    rows: dict[Stated, tuple[Queue, int]]

    def orders(self, gid: int) -> dict[int, int]:
        """Return the place of each call on a group, by seq, among all calls of the rank."""
        return {seq: int(q.order[row]) for (on, seq, _), (q, row) in self.rows.items() if on == gid}

    def sends(self, rank: int, gid: int, counted: Frontier) -> Queue | None:
        """Return the stated sends and receives of a rank on a group with those that it counts after them; None where none is stated."""
        own = [place for (on, _, op), place in self.rows.items() if on == gid and op in _SENDS]
        if not own:
            return None
        queue, first = min(own, key=lambda place: place[1])
        last = max([counted.enqueued or 0, *(int(queue.seq[row]) for _, row in own)])
        kept = slice(first, first + int(np.count_nonzero(queue.seq[first:] <= last)))
        state = np.full_like(queue.state[kept], State.PENDING)
        columns = {name: getattr(queue, name)[kept] for name in ("seq", "kind", "order")}
        unknown = np.zeros(len(state), np.int64)
        stated = Queue(rank, gid, state=state, created=unknown, frontier=counted, **columns)
        return replace(stated, pending_only=True, told=True)


def counterpart(incident: Incident, rank: int, stated: Collection[Stated]) -> Counterpart | None:
    """Return the first counterpart that has all stated calls of a rank; None where there is none, or no send or receive is stated."""
    sends = [call for call in stated if call[2] in _SENDS]
    own = incident.groups[sends[0][0]] if sends else None
    for group in _alike(incident, own) if own is not None else ():
        if own is not None and len(group.ranks) == len(own.ranks):
            peer = group.ranks[own.ranks.index(rank)]
            found = {call: row for call in stated if (row := _row(incident, peer, call)) is not None}
            if len(found) == len(set(stated)):
                return Counterpart(found)
    return None


def _alike(incident: Incident, group: Group) -> Iterator[Group]:
    """Return the groups of one purpose, a group itself among them."""
    return (
        g for g in incident.groups if g.members_known and (g.desc or g.name) == (group.desc or group.name)
    )


def _row(incident: Incident, peer: int, call: Stated) -> tuple[Queue, int] | None:
    """Return the queue and the row of a rank's call that has the seq and the op of a stated one, on its own group of that purpose."""
    gid, seq, op = call
    record = incident.ranks[peer]
    queues = record.p2p if op in _SENDS else record.queues
    for group in _alike(incident, incident.groups[gid]):
        queue = queues.get(group.gid)
        if queue is None:
            continue
        for row in np.flatnonzero(queue.seq == seq).tolist():
            # Lines call a barrier an all_reduce; a send has the number of the receive of the same batch.
            if op not in _SENDS or incident.kinds.without_sizes(int(queue.kind[row])).op == op:
                return queue, row
    return None
