"""The calls of a recorder's dump: what several entries have in common, their own numbers, batches of coalesced calls, and kinds.

The end entry of a batch (`nccl:coalesced`, `nccl:ALLGATHER_coalesced`) carries the state; its members keep "scheduled" for ever.
Before version 2.7 only the end is an entry.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import field
from sys import intern  # equal texts must be one object: pickled bytes are compared to find what dumps share
from typing import Any, NamedTuple, TypeAlias

from hangscope.ingest.recorder.plausibility import Implausible, check_frame
from hangscope.ingest.recorder.recording import Flat, OwnSizes, Recording, StackRow, flat, may_differ
from hangscope.ingest.recorder.values import STATES, Tensors, as_int, as_key, as_text, p2p_sides, user_op
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import State
from hangscope.model.regex import regex

_COALESCED_END = regex(r"(?:^|[_:])coalesced$", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Call:
    """What several entries of a dump have in common: all but their numbers, times and, if `own_sizes` is True, their sizes.

    `entry` is the first of these entries. `backend` and `op` are the two parts of its profiling name (`nccl:all_gather`,
    `nccl:send 0->1`, `nccl:coalesced`), and `ends_batch` is True for the last form. `group` is the index of the recording's
    local group, `state` an `incident.State`, `kind` the index of the recording's kind, or -1 until it is needed.
    """

    entry: dict[str, Any]
    local_id: str
    group: int
    backend: str
    op: str
    is_p2p: bool
    ends_batch: bool
    own_sizes: bool
    state: int
    kind: int = -1

    @classmethod
    def of(cls, entry: dict[str, Any], local_id: str, group: int) -> Call:
        """Return the call of an entry whose profiling name is a string."""
        name = entry["profiling_name"]
        backend, _, op = as_text(name).rpartition(":")
        is_p2p = "->" in name or "<-" in name or bool(entry.get("is_p2p"))
        ends_batch = _COALESCED_END.search(name) is not None
        own_sizes = not is_p2p and may_differ(user_op(op))
        state = int(STATES.get(as_text(entry.get("state")).lower(), State.UNKNOWN))
        return cls(entry, local_id, group, backend, op, is_p2p, ends_batch, own_sizes, state)


class Row(NamedTuple):
    """One entry. `own` is the index of its own sizes among those of the dump, -1 if it has none."""

    call: Call
    order: int
    seq: int
    p2p_seq: int
    created: int
    own: int = -1

    def number(self, is_p2p: bool) -> int:
        """Return its number among its group's point-to-point calls, or among its collectives."""
        return self.p2p_seq if is_p2p else self.seq


#: local group id, is_p2p, seq
Key = tuple[str, bool, int]


@dataclass(slots=True)
class Batch:
    """The entries of one coalesced call: its members (none before 2.7) and the end entry."""

    members: list[Row] = field(default_factory=list)
    end: Row | None = None

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
        self.by_key: dict[Key, Batch] = {}  # those with an end entry
        self._key_of_end: dict[int, Key] = {}  # by identity of the row
        before: dict[str, tuple[bool, int]] = {}
        for row in rows:
            call = row.call
            if call.ends_batch:
                was_p2p, seq = before.get(call.local_id, (False, -1))
                is_p2p = call.is_p2p or (was_p2p and seq == row.p2p_seq) or (not row.seq and row.p2p_seq > 0)
                key = call.local_id, is_p2p, row.number(is_p2p)
                self.by_key.setdefault(key, Batch()).end = row
                self._key_of_end[id(row)] = key
            else:
                before[call.local_id] = (call.is_p2p, row.number(call.is_p2p))
        for row in rows:
            batch = self.by_key.get(self.key(row))
            if batch is not None and not row.call.ends_batch:
                batch.members.append(row)
        self.lost = self._lost(rows)

    def key(self, row: Row) -> Key:
        """Return the batch that an entry ends or may be a member of."""
        call = row.call
        key = self._key_of_end.get(id(row))
        return key if key is not None else (call.local_id, call.is_p2p, row.number(call.is_p2p))

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
        lost = {key for key, count in members.items() if count > 1 and key not in self.by_key}
        oldest: dict[str, Key] = {}
        for key in sorted(members, reverse=True):
            oldest[key[0]] = key
        return lost | {
            key for key in oldest.values() if any(other[0] == key[0] and other > key for other in lost)
        }


FrameRow: TypeAlias = tuple[str, str, int]


class KindRows:
    """Adds the kinds of one dump's calls to its recording."""

    def __init__(self, recording: Recording, implausible: Implausible) -> None:
        self._recording, self._implausible = recording, implausible
        self.tensors = Tensors()
        self.own_sizes = OwnSizes()
        self._own: dict[Any, Flat] = {}
        self._stacks: dict[tuple[int, ...], int] = {}
        self._by_id: dict[int, FrameRow] = {}
        self._rows: dict[FrameRow, FrameRow] = {}

    def of(self, call: Call) -> int:
        """Return the index of a call's kind."""
        if call.kind < 0:
            get, op, src, dst = call.entry.get, call.op, None, None
            if call.is_p2p:
                op, src, dst = p2p_sides(op)
            sizes = (None, None) if call.own_sizes else (get("input_sizes"), get("output_sizes"))
            types = get("input_dtypes"), get("output_dtypes")
            call.kind = self._add(user_op(op), call, sizes, types, src, dst)
        return call.kind

    def of_batch(self, batch: Batch) -> int:
        """Return the index of a coalesced collective's kind: its members' sizes in order, under the name of the end entry."""
        assert batch.end is not None
        members = batch.members or [batch.end]
        named = members[0] if batch.members and batch.end.call.op.lower() == "coalesced" else batch.end
        op = user_op(named.call.op)
        sizes: tuple[list[Any], list[Any]] = ([], [])
        types: tuple[list[Any], list[Any]] = ([], [])
        for call, *_, own in members:
            get = call.entry.get
            shapes = self.own_sizes.of(own) if own >= 0 else (get("input_sizes"), get("output_sizes"))
            values = (*shapes, get("input_dtypes"), get("output_dtypes"))
            for part, value in zip((*sizes, *types), values, strict=True):
                part.extend(value if isinstance(value, (list, tuple)) else [])
        if not may_differ(op):
            return self._add(op, batch.end.call, sizes, types)
        self.own_sizes.picks.extend(self.own_sizes.add([self.own(*sizes)]))
        return self._add(op, batch.end.call, (None, None), types)

    def own(self, inputs: Any, outputs: Any) -> Flat:
        """Return sizes that are a call's own."""
        key = as_key((inputs, outputs))
        if key not in self._own:
            self._own[key] = flat(self.tensors.sizes(inputs), self.tensors.sizes(outputs))
        return self._own[key]

    def _add(
        self, op: str, call: Call, sizes: Any, types: Any, src: int | None = None, dst: int | None = None
    ) -> int:
        tensors, stack = self.tensors, self._stack(call.entry.get("frames"))
        shapes = tensors.sizes(sizes[0]), tensors.sizes(sizes[1])
        names = tensors.types(types[0]), tensors.types(types[1])
        return self._recording.kind(
            (intern(op), intern(call.backend), *shapes, *names, src, dst, stack, None)
        )

    def _stack(self, frames: Any) -> int:
        if not isinstance(frames, list):
            frames = []
        ids = tuple(map(id, frames))  # frame dicts are shared objects in a pickle, and alive while it is read
        index = self._stacks.get(ids)
        if index is None:
            rows: StackRow = tuple(self._frame(frame) for frame in frames if isinstance(frame, dict))
            if len(rows) < len(frames):
                self._implausible.add("frames", frames)
            index = self._stacks[ids] = self._recording.stack(rows)
        return index

    def _frame(self, frame: dict[str, Any]) -> FrameRow:
        row = self._by_id.get(id(frame))
        if row is None:
            check_frame(frame, self._implausible)
            name, file = as_text(frame.get("name", "")), as_text(frame.get("filename", ""))
            row = intern(name), intern(file), as_int(frame.get("line"))
            row = self._by_id[id(frame)] = self._rows.setdefault(row, row)
        return row
