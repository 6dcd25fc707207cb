"""Coalesced calls in a recorder's dump: which entries are members of one batch, and which entry ends it.

The end entry (`nccl:coalesced`, `nccl:ALLGATHER_coalesced`) carries the state; its members keep "scheduled" for ever. Before
version 2.7 only the end is an entry.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hangscope.ingest.recorder.calls.call import Row
from hangscope.model.incident import State

#: local group id, is_p2p, seq
Key = tuple[str, bool, int]


class Batch:
    """The entries of one coalesced call: its members (none before 2.7) and the end entry."""

    __slots__ = ("end", "members")

    def __init__(self) -> None:
        self.members: list[Row] = []
        self.end: Row | None = None

    @property
    def state(self) -> State:
        """Return the state of the end entry."""
        state = State.UNKNOWN if self.end is None else State(self.end.call.state)
        return State.PENDING if state == State.UNKNOWN else state


class Batches:
    """The batches of one dump. `lost` are the batches of sends and receives whose end the dump left out.

    An end entry does not say what it ends: its `is_p2p` is false, and it has both numbers of the group. The entry of
    the same group just before it decides, because a batch is recorded without interruption.
    """

    def __init__(self, rows: Sequence[Row]) -> None:
        self._by_key: dict[Key, Batch] = {}
        self._key_of_end: dict[int, Key] = {}  # by identity of the row
        before: dict[str, tuple[bool, int]] = {}
        for row in rows:
            call = row.call
            if call.ends_batch:
                was_p2p, seq = before.get(call.local_id, (False, -1))
                is_p2p = call.is_p2p or (was_p2p and seq == row.p2p_seq) or (not row.seq and row.p2p_seq > 0)
                key = call.local_id, is_p2p, row.number(is_p2p)
                self._by_key.setdefault(key, Batch()).end = row
                self._key_of_end[id(row)] = key
            else:
                before[call.local_id] = (call.is_p2p, row.number(call.is_p2p))
        for row in rows:
            batch = self.get(self.key(row))
            if batch is not None and not row.call.ends_batch:
                batch.members.append(row)
        self.lost = self._lost(rows)

    def key(self, row: Row) -> Key:
        """Return the batch that an entry ends or may be a member of."""
        call = row.call
        key = self._key_of_end.get(id(row))
        return key if key is not None else (call.local_id, call.is_p2p, row.number(call.is_p2p))

    def get(self, key: Key) -> Batch | None:
        """Return the batch with an end entry that is known by this key, or None."""
        return self._by_key.get(key)

    def _lost(self, rows: Sequence[Row]) -> set[Key]:
        """Return the batches of sends and receives without an end in a dump of pending calls only.

        The end entry is written just after the members and carries the state; members keep "scheduled" for ever. So if
        completed entries were left out of the dump, members without an end belong to a batch that completed. The buffer may
        have kept only the last member of the oldest batch: a single one before such batches is counted as one of them.
        """
        members: Counter[Key] = Counter()
        for row in rows:
            if row.call.entry.get("state") == "completed":
                return set()
            if row.call.is_p2p and not row.call.ends_batch:
                members[self.key(row)] += 1
        lost = {key for key, count in members.items() if count > 1 and key not in self._by_key}
        oldest: dict[str, Key] = {}
        for key in sorted(members, reverse=True):
            oldest[key[0]] = key
        return lost | {
            key for key in oldest.values() if any(other[0] == key[0] and other > key for other in lost)
        }
