"""Flight Recorder dumps: the pickle or JSON of one rank, in every shape since torch 2.2, reduced to a Recording.

Format facts: torch/csrc/distributed/c10d/FlightRecorderDetail.hpp (`dump`, version 2.10 in torch 2.13) and
torch/distributed/flight_recorder/components/ for the older shapes. Seen and handled here:

- no version: the top level is a bare list of entries; 1.x: `seq_id`; 2.0: `collective_seq_id` and `p2p_seq_id`;
  2.1: dtypes; 2.3: `pg_status`; 2.7: the members of coalesced calls are entries too;
- JSON (`_dump_fr_trace_json`): numbers as strings in `pg_status`, no `entries` key when there are none, no frames;
- gloo: `state` is always "scheduled" and completion is `retired`, which also becomes true on errors and timeouts, so the
  completion of a rank's *last* call is UNKNOWN; `pg_config` is one nameless group;
- members of a coalesced call keep "scheduled" for ever: the end entry with the same sequence number carries their state.
"""

from __future__ import annotations

import marshal
import re
from typing import Any

from hangscope.errors import Note
from hangscope.incident import State
from hangscope.ingest.members import Members, known_members, parse_members
from hangscope.ingest.recording import KindRow, Recording, StackRow

_P2P_NAME = re.compile(r"^(send|recv|isend|irecv)\s+(\d+|\?)\s*(->|<-)\s*(\d+|\?)$")
_LIMIT = 2**62
_STATES = {"scheduled": State.PENDING, "started": State.STARTED, "completed": State.DONE}

# What users call an op whose recorder name is torch's internal one.
_USER_NAMES = {
    "_all_gather_base": "all_gather_into_tensor",
    "_allgather_base": "all_gather_into_tensor",
    "all_gather_into_tensor_coalesced": "all_gather_into_tensor",
    "_reduce_scatter_base": "reduce_scatter_tensor",
    "_reduce_scatter_base_coalesced": "reduce_scatter_tensor",
    "reduce_scatter_tensor_coalesced": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "_broadcast_oop": "broadcast",
    "_reduce_oop": "reduce",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "allreduce_coalesced": "all_reduce",
    "allgather_coalesced": "all_gather",
    "allgather_into_tensor_coalesced": "all_gather_into_tensor",
    "reduce_scatter_coalesced": "reduce_scatter",
    "isend": "send",
    "irecv": "recv",
}
_COALESCED_END = re.compile(r"(?:^|[_:])coalesced$", re.IGNORECASE)


def user_op(name: str) -> str:
    """Return the name that users know for a recorder name without its backend prefix."""
    lowered = name.lower()
    return _USER_NAMES.get(lowered, lowered)


def looks_like_dump(value: Any) -> bool:
    """Return whether a loaded value has the shape of a dump of any version."""
    if isinstance(value, dict):
        return (
            "pg_config" in value
            or "pg_status" in value
            or ("entries" in value and "version" in value)
            or (isinstance(value.get("entries"), list) and any(_is_entry(e) for e in value["entries"][:4]))
        )
    return isinstance(value, list) and bool(value) and all(_is_entry(e) for e in value[:4])


def _is_entry(value: Any) -> bool:
    return isinstance(value, dict) and "profiling_name" in value and ("state" in value or "seq_id" in value)


def _names_a_call(entry: Any) -> bool:
    """Return whether an entry says what was called and on which group; less is no record of a call."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("profiling_name"), str)
        and ("pg_id" in entry or "process_group" in entry)
    )


def reduce_dump(value: Any) -> Recording:
    """Return a loaded dump as a Recording; what does not fit becomes a note of it, never an exception."""
    top = {"entries": value} if isinstance(value, list) else value
    recording = Recording(source="flight_recorder", version=_text(top.get("version", "")))
    recording.config.update(_config(top.get("pg_config")))
    recording.status = _status(top.get("pg_status"))
    rank = top.get("rank")
    if isinstance(rank, int) and not isinstance(rank, bool) and rank >= 0:
        recording.rank = rank
    entries = top.get("entries")
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        recording.notes.append(Note("malformed", f"`entries` is a {type(entries).__name__}, not a list"))
        entries = []
    _Entries(recording).reduce(entries)
    return recording


def _config(raw: Any) -> dict[str, tuple[str, Members | None]]:
    config: dict[str, tuple[str, Members | None]] = {}
    if not isinstance(raw, dict):
        return config
    for key, value in raw.items():
        if not isinstance(value, dict):
            continue
        ranks = value.get("ranks")
        # A string "[0, 1]" in pickles; a list in some JSON writers. "[]" is how gloo writes "not recorded".
        members = (
            parse_members(ranks)
            if isinstance(ranks, str)
            else (known_members(n for n in ranks if isinstance(n, int)) if isinstance(ranks, list) else None)
        )
        config[_text(value.get("name", key))] = (_desc(value.get("desc")), members)
    return config


def _desc(value: Any) -> str:
    return "" if value in (None, "undefined") else _text(value)


def _text(value: Any) -> str:
    """Return a value as text that can be written: a lone surrogate, which only a forged dump holds, becomes `?`."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _status(raw: Any) -> dict[str, tuple[int, int, int]]:
    status: dict[str, tuple[int, int, int]] = {}
    if not isinstance(raw, dict):
        return status
    for key, value in raw.items():
        if isinstance(value, dict):
            status[_text(key)] = (
                _int(value.get("last_enqueued_collective"), -1),
                _int(value.get("last_started_collective"), -1),
                _int(value.get("last_completed_collective"), -1),
            )
    return status


def _int(value: Any, default: int = 0) -> int:
    if type(value) is int:  # all but a few values: JSON has numbers as strings, hostile files have anything
        return value if -_LIMIT < value < _LIMIT else default
    if isinstance(value, str):
        try:
            return _int(int(value), default)
        except ValueError:
            return default
    if not isinstance(value, float) or value != value:
        return default
    return int(value) if abs(value) < _LIMIT else default


def _state(value: Any) -> State:
    return _STATES.get(value.lower(), State.UNKNOWN) if isinstance(value, str) else State.UNKNOWN


def _key(value: Any) -> bytes | str:
    """Return a hashable form of plain nested containers, equal for equal values."""
    try:
        return marshal.dumps(
            value, 2
        )  # version 2 has no references, which would depend on how objects are shared
    except ValueError:  # nested too deeply
        return repr(value)


class _Name:
    """What a profiling name says: `nccl:all_gather`, `nccl:send 0->1`, `nccl:coalesced`."""

    __slots__ = ("backend", "ends_batch", "is_p2p", "op")

    def __init__(self, name: str) -> None:
        self.backend, _, self.op = _text(name).rpartition(":")
        self.is_p2p = "->" in name or "<-" in name
        self.ends_batch = _COALESCED_END.search(name) is not None


def _names(entries: list[Any]) -> dict[str, _Name]:
    """Return what each distinct profiling name says."""
    names: dict[str, _Name] = {}
    for entry in entries:
        if isinstance(entry, dict):
            name = entry.get("profiling_name")
            if isinstance(name, str) and name not in names:
                names[name] = _Name(name)
    return names


class _Entries:
    """Turns entries into rows. One instance per dump; caches what entries share.

    Training repeats itself: what followed a kind of call before follows it again, so that guess is compared first, which
    takes a fraction of the time of looking the call up.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.stack_by_ids: dict[tuple[int, ...], int] = {}
        self.kind_by_parts: dict[Any, int] = {}
        self.followed_by: dict[int, tuple[tuple[Any, ...], int]] = {}
        self.last_kind = -1
        self.places: dict[Any, tuple[str, int]] = {}
        self.bad = 0

    def reduce(self, entries: list[Any]) -> None:
        names = _names(entries)
        ends = _coalesced_ends(entries) if any(name.ends_batch for name in names.values()) else {}
        lost_ends = _batches_without_end(entries, ends)
        last_on_gloo: dict[str, int] = {}
        columns = self.recording.columns
        add_group, add_seq, add_kind = columns["group"].append, columns["seq"].append, columns["kind"].append
        add_state, add_created, add_order = (
            columns["state"].append,
            columns["created"].append,
            columns["order"].append,
        )
        rows_done: set[tuple[Any, ...]] = set()
        for position, entry in enumerate(entries):
            if not _names_a_call(entry):
                self.bad += 1
                continue
            name = names[entry["profiling_name"]]
            is_p2p = name.is_p2p or bool(entry.get("is_p2p"))
            seq = _seq(entry, is_p2p)
            local_id, group = self._place(entry)
            if ends and name.ends_batch:
                is_p2p, seq = _end_key(ends, local_id, entry, is_p2p, seq)
            batch = ends.get((local_id, is_p2p, seq)) if ends else None
            if batch is not None:
                if batch.end is entry and is_p2p and batch.members:
                    continue  # the end entry of a batch of sends and receives is no call of its own
                if not is_p2p:
                    if (local_id, seq) in rows_done:
                        continue
                    rows_done.add((local_id, seq))
                    kind = self._batch_kind(batch, name.backend)
                else:
                    kind = self._kind(entry, name, is_p2p)
                state = batch.state
            else:
                kind = self._kind(entry, name, is_p2p)
                state = _state(entry.get("state"))
                if (
                    lost_ends
                    and (local_id, seq) in lost_ends
                    and is_p2p
                    and name.backend == "nccl"
                    and position < len(entries) - 1
                ):
                    state = State.DONE
            if name.backend == "gloo":
                state = State.DONE if entry.get("retired") else State.PENDING
                last_on_gloo[local_id] = len(columns["seq"])
            add_group(group)
            add_seq(seq)
            add_kind(kind)
            add_state(state)
            add_created(_int(entry.get("time_created_ns")))
            add_order(_int(entry.get("record_id"), position))
        for row in last_on_gloo.values():
            if columns["state"][row] == State.DONE:
                columns["state"][row] = int(State.UNKNOWN)
        if self.bad:
            self.recording.notes.append(
                Note(
                    "malformed_entries",
                    f"{self.bad} of {len(entries)} entries are not recorder entries and were skipped",
                )
            )

    def _place(self, entry: dict[str, Any]) -> tuple[str, int]:
        """Return the local id of an entry's group, and the group's index."""
        raw = entry.get("process_group")
        key = (entry.get("pg_id"), tuple(raw) if isinstance(raw, list) else raw)
        try:
            place = self.places.get(key)
        except TypeError:  # no version writes unhashable values here
            return self._new_place(entry)
        if place is None:
            place = self.places[key] = self._new_place(entry)
        return place

    def _new_place(self, entry: dict[str, Any]) -> tuple[str, int]:
        local_id, raw = _text(entry.get("pg_id", "")), entry.get("process_group")
        if isinstance(raw, (list, tuple)) and raw:
            return local_id, self.recording.group(
                local_id, _text(raw[0]), _desc(raw[1]) if len(raw) > 1 else ""
            )
        # Before `process_group` existed only the local id tells groups apart; 0 is always the default group.
        return local_id, self.recording.group(local_id, local_id or "0", "")

    def _kind(self, entry: dict[str, Any], name: _Name, is_p2p: bool) -> int:
        get = entry.get
        parts = (
            name,
            is_p2p,
            get("input_sizes"),
            get("output_sizes"),
            get("input_dtypes"),
            get("output_dtypes"),
            get("frames"),
        )
        guess = self.followed_by.get(self.last_kind)
        if guess is not None and guess[0] == parts:
            self.last_kind = guess[1]
            return guess[1]
        index = self._look_up(*parts)
        self.followed_by[self.last_kind] = parts, index
        self.last_kind = index
        return index

    def _look_up(
        self,
        name: _Name,
        is_p2p: bool,
        sizes_in: Any,
        sizes_out: Any,
        types_in: Any,
        types_out: Any,
        frames: Any,
    ) -> int:
        stack = self._stack(frames)
        key = (name, is_p2p, stack, _key((sizes_in, sizes_out, types_in, types_out)))
        index = self.kind_by_parts.get(key)
        if index is None:
            src = dst = None
            plain = name.op
            if is_p2p:
                plain, src, dst = _p2p(name.op)
            row: KindRow = (
                user_op(plain),
                name.backend,
                _sizes(sizes_in),
                _sizes(sizes_out),
                _types(types_in),
                _types(types_out),
                src,
                dst,
                stack,
                None,
            )
            index = self.kind_by_parts[key] = self.recording.kind(row)
        return index

    def _batch_kind(self, batch: _Batch, backend: str) -> int:
        """Return one kind for a coalesced collective: its members' sizes in order, under the end entry's name."""
        members = batch.members or [batch.end]
        end_name = _text((batch.end or members[-1])["profiling_name"]).rpartition(":")[2]
        member_name = _text(members[0]["profiling_name"]).rpartition(":")[2]
        op = user_op(member_name if end_name.lower() == "coalesced" and batch.members else end_name)
        stack = self._stack((batch.end or members[0]).get("frames"))
        joined: list[list[Any]] = [[], [], [], []]
        for member in members:
            for part, key in zip(
                joined, ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"), strict=True
            ):
                value = member.get(key)
                part.extend(value if isinstance(value, list) else [])
        row: KindRow = (
            op,
            backend,
            _sizes(joined[0]),
            _sizes(joined[1]),
            _types(joined[2]),
            _types(joined[3]),
            None,
            None,
            stack,
            None,
        )
        return self.recording.kind(row)

    def _stack(self, frames: Any) -> int:
        if not isinstance(frames, list) or not frames:
            return self.recording.stack(())
        ids = tuple(map(id, frames))  # frame dicts are shared objects in a pickle, and alive while we read it
        index = self.stack_by_ids.get(ids)
        if index is None:
            row: StackRow = tuple(
                (_text(f.get("name", "")), _text(f.get("filename", "")), _int(f.get("line")))
                for f in frames
                if isinstance(f, dict)
            )
            index = self.stack_by_ids[ids] = self.recording.stack(row)
        return index


class _Batch:
    """The entries of one coalesced call: members (possibly none before 2.7) and the end entry (none yet when pending)."""

    __slots__ = ("end", "members")

    def __init__(self) -> None:
        self.members: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}

    @property
    def state(self) -> State:
        return _STATES.get(str(self.end.get("state", "")).lower(), State.PENDING)


def _coalesced_ends(entries: list[Any]) -> dict[tuple[str, bool, int], _Batch]:
    """Return the coalesced batches that have an end entry, by (local group id, is_p2p, seq).

    An end entry does not say what it ends: `is_p2p` is false on it, and both numbers of the group stand on it. The entry of
    the same group just before it tells, because a batch is recorded without a break.
    """
    batches: dict[tuple[str, bool, int], _Batch] = {}
    before: dict[str, tuple[bool, int]] = {}
    for entry in entries:
        if not isinstance(entry, dict) or "profiling_name" not in entry:
            continue
        local_id, name = str(entry.get("pg_id", "")), str(entry["profiling_name"])
        is_p2p = bool(entry.get("is_p2p")) or "->" in name or "<-" in name
        if _COALESCED_END.search(name):
            was_p2p, seq = before.get(local_id, (False, -1))
            is_p2p = (
                is_p2p
                or (was_p2p and seq == _seq(entry, True))
                or (not entry.get("collective_seq_id") and bool(entry.get("p2p_seq_id")))
            )
            batches.setdefault((local_id, is_p2p, _seq(entry, is_p2p)), _Batch()).end = entry
        else:
            before[local_id] = (is_p2p, _seq(entry, is_p2p))
    if not batches:
        return batches
    for entry in entries:
        if isinstance(entry, dict) and "profiling_name" in entry:
            name = str(entry["profiling_name"])
            is_p2p = bool(entry.get("is_p2p")) or "->" in name or "<-" in name
            batch = batches.get((str(entry.get("pg_id", "")), is_p2p, _seq(entry, is_p2p)))
            if batch is not None and not _COALESCED_END.search(name):
                batch.members.append(entry)
    return batches


def _batches_without_end(
    entries: list[Any], ends: dict[tuple[str, bool, int], _Batch]
) -> set[tuple[str, int]]:
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
            if (entry.get("is_p2p") or "->" in name or "<-" in name) and not _COALESCED_END.search(name):
                key = (str(entry.get("pg_id", "")), _seq(entry, True))
                members[key] = members.get(key, 0) + 1
    return {key for key, count in members.items() if count > 1 and (key[0], True, key[1]) not in ends}


def _end_key(
    ends: dict[tuple[str, bool, int], _Batch], local_id: str, entry: dict[str, Any], is_p2p: bool, seq: int
) -> tuple[bool, int]:
    """Return (is_p2p, seq) of the batch that this end entry ends."""
    for p2p in (True, False):
        key = (local_id, p2p, _seq(entry, p2p))
        if key in ends and ends[key].end is entry:
            return p2p, key[2]
    return is_p2p, seq


def _seq(entry: dict[str, Any], is_p2p: bool) -> int:
    if is_p2p and "p2p_seq_id" in entry:
        return _int(entry["p2p_seq_id"])
    return _int(entry.get("collective_seq_id", entry.get("seq_id")))


def _p2p(op: str) -> tuple[str, int, int]:
    """Return (send or recv, source, destination) of `send 0->1` or `recv 0<-8`; -1 is an unknown side (`recv 0<-?`)."""
    match = _P2P_NAME.match(op)
    if match is None:
        return op.split(" ", 1)[0], -1, -1
    word, left, arrow, right = match.groups()
    a, b = (-1 if n == "?" else int(n) for n in (left, right))
    return word, *((a, b) if arrow == "->" else (b, a))


def _sizes(raw: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(raw, list):
        return ()
    return tuple(tuple(_int(n) for n in shape) for shape in raw if isinstance(shape, (list, tuple)))


def _types(raw: Any) -> tuple[str, ...]:
    return tuple(_text(t) for t in raw) if isinstance(raw, list) else ()
