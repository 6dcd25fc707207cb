"""Pair sends with receives: the i-th send of a (source, destination) pair meets the i-th receive.

A recorder numbers point-to-point ops per group and rank, not per pair, so numbers agree between two ranks only where they talk to
nobody else on that group. Pairs are therefore counted; where a recorder buffer lost the beginning, the two ends are aligned at
their last completed op, because a send and its receive complete together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import Column, Group, Incident, Queue, State

Side = tuple[bool, int, int]  #: whether it sends, and the global ranks of source and destination


@dataclass(frozen=True, slots=True)
class PairInstance:
    """One send with its receive: the `index`-th of a pair of ranks (global) on a group, counted from 0."""

    gid: int
    source: int
    destination: int
    index: int


@dataclass(frozen=True, slots=True)
class Half:
    """A send or a receive: the rank that posted it, its number on that rank, state, enqueue order, kind and time (ns)."""

    rank: int
    seq: int
    state: State
    order: int
    kind: int
    created: int


@dataclass(slots=True)
class Pair:
    """One send with its receive; one of them is None where that rank has not posted it."""

    key: PairInstance
    send: Half | None
    recv: Half | None

    @property
    def stalls(self) -> bool:
        """Return whether both sides are there, and neither is complete."""
        return all(half is not None and half.state <= State.STARTED for half in (self.send, self.recv))


class Halves:
    """The sends, or the receives, of one (source, destination) pair in the order of their enqueue: rows of one queue, which become a `Half` if asked for."""

    def __init__(self, queue: Queue, rows: Column) -> None:
        self._queue, self._rows = queue, rows
        state = queue.state[rows]
        self.waits = np.flatnonzero(state <= State.STARTED)
        self.last_done = max(np.flatnonzero(state == State.DONE).tolist(), default=-1)
        self.tells_completion = queue.tells_completion

    def __len__(self) -> int:
        return len(self._rows)

    def kinds(self, count: int) -> np.ndarray:
        """Return the numbers of the kinds of the first `count` of them (int64)."""
        return self._queue.kind[self._rows[:count]]

    def at(self, index: int, met: bool) -> Half | None:
        """Return one of them, None where there is none. One that has not `met` its counterpart is pending, whatever its log shows."""
        if not 0 <= index < len(self):
            return None
        queue, row = self._queue, int(self._rows[index])
        state = State(int(queue.state[row])) if met or self.tells_completion else State.PENDING
        order, kind, created = (int(column[row]) for column in (queue.order, queue.kind, queue.created))
        return Half(queue.rank, int(queue.seq[row]), state, order, kind, created)


def _sides(incident: Incident, group: Group) -> tuple[dict[Side, Halves], set[int]]:
    """Return the sends and receives on a group by side, and the ranks whose recorder lost the first of them; unknown ends pair with no rank."""
    sides: dict[Side, Halves] = {}
    wrapped: set[int] = set()
    known = enumerate(group.ranks) if group.members_known else zip(group.ranks, group.ranks, strict=True)
    members: dict[int | None, int] = dict(known)  # global ranks by group-local ones
    for rank in group.ranks:
        queue = incident.ranks[rank].p2p.get(group.gid) if rank in incident.ranks else None
        if queue is None:
            continue
        if queue.overwritten or queue.told or int(queue.seq.min()) > 1:
            wrapped.add(rank)
        kinds: dict[Side, list[int]] = defaultdict(list)
        for index in np.unique(queue.kind).tolist():
            kind = incident.kinds.without_sizes(index)
            source, destination = (members.get(end, -1) for end in (kind.src, kind.dst))
            is_send = kind.op == "send"
            if min(source, destination) >= 0 and rank == (source if is_send else destination):
                kinds[is_send, source, destination].append(index)
        for side, own in kinds.items():
            sides[side] = Halves(queue, np.flatnonzero(np.isin(queue.kind, own)))
    return sides, wrapped


def outrun(incident: Incident) -> set[int]:
    """Return the ranks whose dump lacks a send or receive that its partner completed: the dump is stale."""
    stale: set[int] = set()
    for group in incident.groups:
        sides, wrapped = _sides(incident, group)
        for (is_send, source, destination), halves in sides.items():
            other = sides.get((not is_send, source, destination))
            if other is None or not other.tells_completion or wrapped.intersection((source, destination)):
                continue
            if halves.last_done >= len(other):
                stale.add(destination if is_send else source)
    return stale


def pairs(incident: Incident) -> list[Pair]:
    """Return the pending point-to-point ops of all groups, each with the one that its peer posted, if any."""
    result: list[Pair] = []
    nothing = np.empty(0, np.int64)
    for group in incident.groups:
        sides, wrapped = _sides(incident, group)
        none = Halves(Queue(-1, group.gid, nothing, nothing, nothing, nothing, nothing), nothing)
        for source, destination in sorted({(source, destination) for _, source, destination in sides}):
            out, into = (sides.get((is_send, source, destination), none) for is_send in (True, False))
            lost = not wrapped.isdisjoint((source, destination))
            first = PairInstance(group.gid, source, destination, 0)
            result += _pending_pairs(first, out, into, lost, _unlike(incident, out, into))
    return result


def _unlike(incident: Incident, out: Halves, into: Halves) -> set[int]:
    """Return which sends of a log, by their index, are of another size or element type than their receives: they cannot complete."""
    count = 0 if out.tells_completion and into.tells_completion else min(len(out), len(into))
    sides = np.stack((out.kinds(count), into.kinds(count)), axis=1)
    found: set[int] = set()
    for own, other in np.unique(sides, axis=0).tolist():
        sent, received = incident.kinds[own], incident.kinds[other]
        if (numel(sent.input_sizes), sent.input_dtypes) != (
            numel(received.output_sizes),
            received.output_dtypes,
        ):
            found.update(np.flatnonzero((sides == (own, other)).all(axis=1)).tolist())
    return found


def _pending_pairs(
    first: PairInstance, out: Halves, into: Halves, lost: bool, unlike: set[int]
) -> list[Pair]:
    """Return the pending pairs of two ranks; `lost`: a buffer lost the beginning, so that the longer side counts for both."""
    most = max(out.last_done, into.last_done)
    late, later = (most - half.last_done if lost else 0 for half in (out, into))
    waiting = {*(out.waits + late).tolist(), *(into.waits + later).tolist()}
    sent, received = range(late, len(out) + late), range(later, len(into) + later)
    if not (out.tells_completion and into.tells_completion):
        waiting |= set(sent) ^ set(received) | unlike
    result = []
    for index in sorted(waiting):
        met = index in sent and index in received and index not in unlike
        send, recv = out.at(index - late, met), into.at(index - later, met)
        if any(half is not None and half.state <= State.STARTED for half in (send, recv)):
            result.append(Pair(replace(first, index=index), send, recv))
    return result
