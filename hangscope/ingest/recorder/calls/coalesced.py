"""Coalesced calls in a recorder's dump: which entries are members of one call, and which entry ends it.

The end entry (`nccl:coalesced`, `nccl:ALLGATHER_coalesced`) carries the state; members read "scheduled" for ever. Before
2.7 only the end is an entry.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hangscope.ingest.recorder.calls.rows import Row
from hangscope.model.incident import State
from hangscope.model.regex import regex

COALESCED_END = regex(r"(?:^|[_:])coalesced$", re.IGNORECASE)


class Batch:
    """The entries of one coalesced call: members (possibly none before 2.7) and the end entry (none yet when pending)."""

    __slots__ = ("end", "members")

    def __init__(self) -> None:
        self.members: list[Row] = []
        self.end: Row | None = None

    @property
    def state(self) -> State:
        """Return the end's state; a batch without one is pending."""
        told = State.UNKNOWN if self.end is None else State(self.end.call.state)
        return State.PENDING if told == State.UNKNOWN else told


def coalesced_batches(rows: Sequence[Row]) -> dict[tuple[str, bool, int], Batch]:
    """Return the coalesced batches that have an end entry, by (local group id, is_p2p, seq).

    An end entry does not say what it ends: `is_p2p` is false on it, and both numbers of the group stand on it. The entry of
    the same group just before it tells, because a batch is recorded without a break.
    """
    batches: dict[tuple[str, bool, int], Batch] = {}
    before: dict[str, tuple[bool, int]] = {}
    for row in rows:
        call = row.call
        if call.name.ends_batch:
            was_p2p, seq = before.get(call.local_id, (False, -1))
            is_p2p = call.is_p2p or (was_p2p and seq == row.number(True)) or (not row.seq and row.p2p_seq > 0)
            batches.setdefault((call.local_id, is_p2p, row.number(is_p2p)), Batch()).end = row
        else:
            before[call.local_id] = (call.is_p2p, row.number(call.is_p2p))
    if not batches:
        return batches
    for row in rows:
        call = row.call
        batch = batches.get((call.local_id, call.is_p2p, row.number(call.is_p2p)))
        if batch is not None and not call.name.ends_batch:
            batch.members.append(row)
    return batches


def batches_without_end(
    rows: Sequence[Row], ends: dict[tuple[str, bool, int], Batch]
) -> set[tuple[str, int]]:
    """Return the point-to-point batches (local group id, seq) that a dump of pending calls only shows without their end.

    The end entry is written right behind the members and carries the state; members read "scheduled" for ever. So where
    completed entries were left out of the dump, members without an end belong to a batch that completed. Of the oldest one
    the ring may have kept the last member only: a lone one before such batches is taken for that.
    """
    members: dict[tuple[str, int], int] = {}
    for row in rows:
        call = row.call
        if call.entry.get("state") == "completed":
            return set()
        if call.is_p2p and not call.name.ends_batch:
            key = (call.local_id, row.number(True))
            members[key] = members.get(key, 0) + 1
    lost = {key for key, count in members.items() if count > 1 and (key[0], True, key[1]) not in ends}
    oldest: dict[str, int] = {}
    for local_id, seq in members:
        oldest[local_id] = min(seq, oldest.get(local_id, seq))
    return lost | {key for key in oldest.items() if any(of == key[0] and seq > key[1] for of, seq in lost)}


def end_key(ends: dict[tuple[str, bool, int], Batch], row: Row) -> tuple[bool, int]:
    """Return (is_p2p, seq) of the batch that this end entry ends."""
    for p2p in (True, False):
        key = (row.call.local_id, p2p, row.number(p2p))
        if key in ends and ends[key].end is row:
            return p2p, key[2]
    return row.call.is_p2p, row.number(row.call.is_p2p)
