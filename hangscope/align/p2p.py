"""Pair sends with receives: the i-th send of a (source, destination) pair meets the i-th receive.

A recorder numbers point-to-point calls per group and rank, not per pair, so numbers agree between two ranks only where
they talk to nobody else on that group. Pairs are therefore counted; where a ring lost the beginning, the two sides are
aligned at their last completed call, because a send and its receive complete together.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hangscope.align.nodes import PairInstance
from hangscope.dataclass import dataclass
from hangscope.incident import Group, Incident, State


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
    for group in incident.groups:
        sends, recvs, wrapped = _sides(incident, group)
        for source, destination in sorted(set(sends) | set(recvs)):
            out, into = sends.get((source, destination), []), recvs.get((source, destination), [])
            shift = _shift(
                out,
                into,
                (source, group.gid) in wrapped or (destination, group.gid) in wrapped,
                len(group.ranks) == 2,
            )
            result += _open_pairs(group.gid, source, destination, out, into, shift)
    return result


Side = dict[tuple[int, int], list[Half]]


def _sides(incident: Incident, group: Group) -> tuple[Side, Side, set[tuple[int, int]]]:
    sends: Side = defaultdict(list)
    recvs: Side = defaultdict(list)
    wrapped: set[tuple[int, int]] = set()
    for rank in group.ranks:
        queue = incident.ranks[rank].p2p.get(group.gid) if rank in incident.ranks else None
        if queue is None:
            continue
        if queue.overwritten or int(queue.seq.min()) > 1:
            wrapped.add((rank, group.gid))
        for position in range(len(queue)):
            kind = incident.kinds.without_sizes(int(queue.kind[position]))
            source, destination = _global(group, kind.src), _global(group, kind.dst)
            if source is None or destination is None:
                continue  # an unknown side (`recv 0<-?`) or a rank outside the group pairs with nobody
            half = Half(
                rank,
                int(queue.seq[position]),
                State(int(queue.state[position])),
                int(queue.order[position]),
                int(queue.kind[position]),
                int(queue.created[position]),
                queue.tells_completion,
            )
            (sends if kind.op == "send" else recvs)[(source, destination)].append(half)
    return sends, recvs, wrapped


def _global(group: Group, local: int | None) -> int | None:
    """Return the global rank of a group-local one."""
    if local is None or local < 0:
        return None
    if not group.members_known:
        return local if local in group.ranks else None
    return group.ranks[local] if local < len(group.ranks) else None


def _shift(out: list[Half], into: list[Half], wrapped: bool, alone: bool) -> int:
    """Return what to add to a receive's index to get the index of its send."""
    if not out or not into or not wrapped:
        return 0
    if alone or {h.seq for h in out[-4:]} & {h.seq for h in into[-4:]}:
        first, second = {h.seq: i for i, h in enumerate(out)}, {h.seq: i for i, h in enumerate(into)}
        common = sorted(set(first) & set(second))
        if common:
            shift = first[common[-1]] - second[common[-1]]
            # A half that completed has met its counterpart; where numbers say otherwise, a half was lost on one side.
            if not any(
                (out[i].state == State.DONE) != (into[i - shift].state == State.DONE)
                for i in range(max(0, shift), min(len(out), len(into) + shift))
            ):
                return shift
    last_out = max((i for i, h in enumerate(out) if h.state == State.DONE), default=-1)
    last_into = max((i for i, h in enumerate(into) if h.state == State.DONE), default=-1)
    return last_out - last_into


def _open_pairs(
    gid: int, source: int, destination: int, out: list[Half], into: list[Half], shift: int
) -> list[Pair]:
    result = []
    for index in range(min(0, shift), max(len(out), len(into) + shift)):
        send = out[index] if 0 <= index < len(out) else None
        recv = into[index - shift] if 0 <= index - shift < len(into) else None
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
