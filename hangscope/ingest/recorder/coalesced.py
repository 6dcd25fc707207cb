"""Coalesced calls in a recorder's dump: which entries are members of one call, and which entry ends it.

The end entry (`nccl:coalesced`, `nccl:ALLGATHER_coalesced`) carries the state; members read "scheduled" for ever. Before
2.7 only the end is an entry.
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.incident import State
from hangscope.ingest.recorder.values import STATES, as_int

COALESCED_END = re.compile(r"(?:^|[_:])coalesced$", re.IGNORECASE)


class Batch:
    """The entries of one coalesced call: members (possibly none before 2.7) and the end entry (none yet when pending)."""

    __slots__ = ("end", "members")

    def __init__(self) -> None:
        self.members: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}

    @property
    def state(self) -> State:
        """Return the end's state; a batch without one is pending."""
        return STATES.get(str(self.end.get("state", "")).lower(), State.PENDING)


def coalesced_batches(entries: list[Any]) -> dict[tuple[str, bool, int], Batch]:
    """Return the coalesced batches that have an end entry, by (local group id, is_p2p, seq).

    An end entry does not say what it ends: `is_p2p` is false on it, and both numbers of the group stand on it. The entry of
    the same group just before it tells, because a batch is recorded without a break.
    """
    batches: dict[tuple[str, bool, int], Batch] = {}
    before: dict[str, tuple[bool, int]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or "profiling_name" not in entry:
            continue
        local_id, name = str(entry.get("pg_id", "")), str(entry["profiling_name"])
        is_p2p = bool(entry.get("is_p2p")) or "->" in name or "<-" in name
        if COALESCED_END.search(name):
            was_p2p, seq = before.get(local_id, (False, -1))
            is_p2p = (
                is_p2p
                or (was_p2p and seq == seq_of(entry, True))
                or (not entry.get("collective_seq_id") and bool(entry.get("p2p_seq_id")))
            )
            batches.setdefault((local_id, is_p2p, seq_of(entry, is_p2p)), Batch()).end = entry
        else:
            before[local_id] = (is_p2p, seq_of(entry, is_p2p))
    if not batches:
        return batches
    for entry in entries:
        if isinstance(entry, dict) and "profiling_name" in entry:
            name = str(entry["profiling_name"])
            is_p2p = bool(entry.get("is_p2p")) or "->" in name or "<-" in name
            batch = batches.get((str(entry.get("pg_id", "")), is_p2p, seq_of(entry, is_p2p)))
            if batch is not None and not COALESCED_END.search(name):
                batch.members.append(entry)
    return batches


def batches_without_end(entries: list[Any], ends: dict[tuple[str, bool, int], Batch]) -> set[tuple[str, int]]:
    """Return the point-to-point batches (local group id, seq) that a dump of pending calls only shows without their end.

    The end entry is written right behind the members and carries the state; members read "scheduled" for ever. So where
    completed entries were left out of the dump, members without an end belong to a batch that completed.
    """
    members: dict[tuple[str, int], int] = {}
    for entry in entries:
        if isinstance(entry, dict) and "profiling_name" in entry:
            if entry.get("state") == "completed":
                return set()
            name = str(entry["profiling_name"])
            if (entry.get("is_p2p") or "->" in name or "<-" in name) and not COALESCED_END.search(name):
                key = (str(entry.get("pg_id", "")), seq_of(entry, True))
                members[key] = members.get(key, 0) + 1
    return {key for key, count in members.items() if count > 1 and (key[0], True, key[1]) not in ends}


def end_key(
    ends: dict[tuple[str, bool, int], Batch], local_id: str, entry: dict[str, Any], is_p2p: bool, seq: int
) -> tuple[bool, int]:
    """Return (is_p2p, seq) of the batch that this end entry ends."""
    for p2p in (True, False):
        key = (local_id, p2p, seq_of(entry, p2p))
        if key in ends and ends[key].end is entry:
            return p2p, key[2]
    return is_p2p, seq


def seq_of(entry: dict[str, Any], is_p2p: bool) -> int:
    """Return an entry's number among its group's point-to-point calls, or among its collectives."""
    if is_p2p and "p2p_seq_id" in entry:
        return as_int(entry["p2p_seq_id"])
    return as_int(entry.get("collective_seq_id", entry.get("seq_id")))
