"""Pair sends with receives: the i-th send of a (source, destination) pair meets the i-th receive.

A recorder numbers point-to-point calls per group and rank, not per pair, so numbers agree between two ranks only where
they talk to nobody else on that group. Pairs are therefore counted; where a ring lost the beginning, the two sides are
aligned at their last completed call, because a send and its receive complete together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hangscope.align.nodes import PairInstance
from hangscope.dataclass import dataclass
from hangscope.incident import Column, Group, Incident, Queue, State

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Half:
    """One side of a point-to-point call: who made it, its number on that rank, state, enqueue order, kind and time (ns)."""

    rank: int
    seq: int
    state: State
    order: int
    kind: int
    created: int
    tells_completion: bool = True


class Halves:
    """The sends, or the receives, of one (source, destination) pair in the order of their enqueue.

    Most of them are over and met their counterpart: they stay columns, and only those that are asked for become a `Half`.
    """

    def __init__(self, parts: Sequence[tuple[Queue, Column]] = ()) -> None:
        self._parts = parts  # queues, and which of their rows
        self.seq = np.concatenate([queue.seq[rows] for queue, rows in parts] or [_NONE])
        state = np.concatenate([queue.state[rows] for queue, rows in parts] or [_NONE])
        self.done = state == State.DONE
        self.waits = (state == State.PENDING) | (state == State.STARTED)
        # A batch completes as a whole: one of its halves may have met its counterpart and wait for the others.
        batched = np.concatenate([_times(queue.seq)[rows] for queue, rows in parts] or [_NONE]) > 1
        self.may_have_met = self.waits & batched
        self.tells_completion = all(queue.tells_completion for queue, _ in parts)

    def __len__(self) -> int:
        return len(self.seq)

    def at(self, index: int) -> Half | None:
        """Return one of them, None where there is none."""
        for queue, rows in self._parts if index >= 0 else ():
            if index < len(rows):
                row = int(rows[index])
                return Half(
                    queue.rank,
                    int(queue.seq[row]),
                    State(int(queue.state[row])),
                    int(queue.order[row]),
                    int(queue.kind[row]),
                    int(queue.created[row]),
                    queue.tells_completion,
                )
            index -= len(rows)
        return None

    @property
    def last_done(self) -> int:
        """Return the index of the last one that is complete, -1 for none."""
        return max(np.flatnonzero(self.done).tolist(), default=-1)


def _times(numbers: Column) -> Column:
    """Return of each number how often it occurs: the calls of one batch_isend_irecv share theirs."""
    _, place, times = np.unique(numbers, return_inverse=True, return_counts=True)
    return times[place]


@dataclass(slots=True)
class Pair:
    """One send with its receive; a side is None where that rank has not made its half."""

    key: PairInstance
    send: Half | None
    recv: Half | None

    @property
    def is_open(self) -> bool:
        """Return whether a present half is not complete."""
        return any(
            h is not None and h.state in (State.PENDING, State.STARTED) for h in (self.send, self.recv)
        )


def pairs(incident: Incident) -> list[Pair]:
    """Return the open point-to-point calls of all groups, each with the half that its peer made, if any."""
    result: list[Pair] = []
    none = Halves()
    for group in incident.groups:
        sends, recvs, wrapped = _sides(incident, group)
        for source, destination in sorted(set(sends) | set(recvs)):
            out, into = sends.get((source, destination), none), recvs.get((source, destination), none)
            shift = _shift(out, into) if wrapped & {source, destination} else 0
            result += _open_pairs(group.gid, source, destination, out, into, shift)
    return result


Side = dict[tuple[int, int], Halves]


def _sides(incident: Incident, group: Group) -> tuple[Side, Side, set[int]]:
    sends: dict[tuple[int, int], list[tuple[Queue, Column]]] = defaultdict(list)
    recvs: dict[tuple[int, int], list[tuple[Queue, Column]]] = defaultdict(list)
    wrapped: set[int] = set()
    for rank in group.ranks:
        queue = incident.ranks[rank].p2p.get(group.gid) if rank in incident.ranks else None
        if queue is None:
            continue
        if queue.overwritten or int(queue.seq.min()) > 1:
            wrapped.add(rank)
        made: dict[tuple[bool, int, int], list[int]] = defaultdict(list)  # kinds of one direction
        for index in np.unique(queue.kind).tolist():
            kind = incident.kinds.without_sizes(index)
            source, destination = _global(group, kind.src), _global(group, kind.dst)
            if source is not None and destination is not None:
                made[kind.op == "send", source, destination].append(index)
            # else an unknown side (`recv 0<-?`) or a rank outside the group, which pairs with nobody
        for (is_send, source, destination), kinds in made.items():
            rows = np.flatnonzero(np.isin(queue.kind, kinds))
            (sends if is_send else recvs)[source, destination].append((queue, rows))
    return (
        {pair: Halves(parts) for pair, parts in sends.items()},
        {pair: Halves(parts) for pair, parts in recvs.items()},
        wrapped,
    )


def _global(group: Group, local: int | None) -> int | None:
    """Return the global rank of a group-local one."""
    if local is None or local < 0:
        return None
    if not group.members_known:
        return local if local in group.ranks else None
    return group.ranks[local] if local < len(group.ranks) else None


def _shift(out: Halves, into: Halves) -> int:
    """Return what to add to a receive's index to get the index of its send, where a ring lost the beginning."""
    first, second = ({seq: i for i, seq in enumerate(side.seq.tolist())} for side in (out, into))
    common = max(first.keys() & second.keys(), default=None)
    if common is not None:
        shift = first[common] - second[common]
        begin, end = max(0, shift), max(0, shift, min(len(out), len(into) + shift))
        # A half that completed has met its counterpart; where numbers say otherwise, a half was lost on one side.
        sent, received = slice(begin, end), slice(begin - shift, end - shift)
        alike = out.done[sent] == into.done[received]
        may_have_met = out.may_have_met[sent] | into.may_have_met[received]
        if (alike | (may_have_met & (out.seq[sent] == into.seq[received]))).all():
            return shift
    return out.last_done - into.last_done


def _open_pairs(gid: int, source: int, destination: int, out: Halves, into: Halves, shift: int) -> list[Pair]:
    waiting = {*np.flatnonzero(out.waits).tolist(), *(np.flatnonzero(into.waits) + shift).tolist()}
    if not (out.tells_completion and into.tells_completion):
        waiting |= set(range(len(out))) ^ set(range(shift, len(into) + shift))
    result = []
    for index in sorted(waiting):
        send, recv = out.at(index), into.at(index - shift)
        if (
            send is None or recv is None
        ):  # a log that tells no completion shows by this alone that a half waits
            send, recv = _waiting(send), _waiting(recv)
        pair = Pair(PairInstance(gid, source, destination, index), send, recv)
        if pair.is_open:
            result.append(pair)
    return result


def _waiting(half: Half | None) -> Half | None:
    return half if half is None or half.tells_completion else replace(half, state=State.PENDING)
