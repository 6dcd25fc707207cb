"""The entries of a recorder's dump as rows of a Recording."""

from __future__ import annotations

from array import array
from typing import Any

from hangscope.errors import Note
from hangscope.incident import State
from hangscope.ingest.recorder.coalesced import (
    COALESCED_END,
    Batch,
    batches_without_end,
    coalesced_batches,
    end_key,
    seq_of,
)
from hangscope.ingest.recorder.own_sizes import Both, OwnSizes, may_differ
from hangscope.ingest.recorder.recording import KindRow, Recording, StackRow
from hangscope.ingest.recorder.values import (
    Tensors,
    as_desc,
    as_int,
    as_key,
    as_state,
    as_text,
    p2p_sides,
    user_op,
)


def _names_a_call(entry: Any) -> bool:
    """Return whether an entry says what was called and on which group; less is no record of a call."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("profiling_name"), str)
        and ("pg_id" in entry or "process_group" in entry)
    )


class _Name:
    """What a profiling name says: `nccl:all_gather`, `nccl:send 0->1`, `nccl:coalesced`."""

    __slots__ = ("backend", "ends_batch", "is_p2p", "op", "sizes_differ")

    def __init__(self, name: str) -> None:
        self.backend, _, self.op = as_text(name).rpartition(":")
        self.is_p2p = "->" in name or "<-" in name
        self.ends_batch = COALESCED_END.search(name) is not None
        self.sizes_differ = not self.is_p2p and may_differ(user_op(self.op))


def _names(entries: list[Any]) -> dict[str, _Name]:
    """Return what each distinct profiling name says."""
    names: dict[str, _Name] = {}
    for entry in entries:
        if isinstance(entry, dict):
            name = entry.get("profiling_name")
            if isinstance(name, str) and name not in names:
                names[name] = _Name(name)
    return names


class Entries:
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
        self.tensors = Tensors()
        self.own_sizes: dict[bytes | str, int] = {}
        self.sizes: list[Both] = []
        self.picks: array[int] = array("i")
        self.bad = 0

    def reduce(self, entries: list[Any]) -> None:
        """Add the rows of a dump's entries, oldest first, to the recording."""
        names = _names(entries)
        ends = coalesced_batches(entries) if any(name.ends_batch for name in names.values()) else {}
        lost_ends = batches_without_end(entries, ends)
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
            seq = seq_of(entry, is_p2p)
            local_id, group = self._place(entry)
            if ends and name.ends_batch:
                is_p2p, seq = end_key(ends, local_id, entry, is_p2p, seq)
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
                state = as_state(entry.get("state"))
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
            add_created(as_int(entry.get("time_created_ns")))
            add_order(as_int(entry.get("record_id"), position))
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

        if self.picks:
            self.recording.own_sizes = OwnSizes(self.picks, self.sizes)
        if self.tensors.cut:
            self.recording.notes.append(
                Note("sizes_cut", "its calls have more and larger shapes than are kept; some were left out")
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
        local_id, raw = as_text(entry.get("pg_id", "")), entry.get("process_group")
        if isinstance(raw, (list, tuple)) and raw:
            return local_id, self.recording.group(
                local_id, as_text(raw[0]), as_desc(raw[1]) if len(raw) > 1 else ""
            )
        # Before `process_group` existed only the local id tells groups apart; 0 is always the default group.
        return local_id, self.recording.group(local_id, local_id or "0", "")

    def _kind(self, entry: dict[str, Any], name: _Name, is_p2p: bool) -> int:
        get = entry.get
        if name.sizes_differ and not is_p2p:
            self._pick(get("input_sizes"), get("output_sizes"))
            return self._look_up(
                name, is_p2p, None, None, get("input_dtypes"), get("output_dtypes"), get("frames")
            )
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
        key = (name, is_p2p, stack, as_key((sizes_in, sizes_out, types_in, types_out)))
        index = self.kind_by_parts.get(key)
        if index is None:
            src = dst = None
            plain = name.op
            if is_p2p:
                plain, src, dst = p2p_sides(name.op)
            row: KindRow = (
                user_op(plain),
                name.backend,
                self.tensors.sizes(sizes_in),
                self.tensors.sizes(sizes_out),
                self.tensors.types(types_in),
                self.tensors.types(types_out),
                src,
                dst,
                stack,
                None,
            )
            index = self.kind_by_parts[key] = self.recording.kind(row)
        return index

    def _pick(self, sizes_in: Any, sizes_out: Any) -> None:
        """Take note of the sizes of the next call whose kind has none."""
        key = as_key((sizes_in, sizes_out))
        index = self.own_sizes.get(key)
        if index is None:
            index = self.own_sizes[key] = len(self.sizes)
            self.sizes.append((self.tensors.sizes(sizes_in), self.tensors.sizes(sizes_out)))
        self.picks.append(index)

    def _batch_kind(self, batch: Batch, backend: str) -> int:
        """Return one kind for a coalesced collective: its members' sizes in order, under the end entry's name."""
        members = batch.members or [batch.end]
        end_name = as_text((batch.end or members[-1])["profiling_name"]).rpartition(":")[2]
        member_name = as_text(members[0]["profiling_name"]).rpartition(":")[2]
        op = user_op(member_name if end_name.lower() == "coalesced" and batch.members else end_name)
        stack = self._stack((batch.end or members[0]).get("frames"))
        joined: list[list[Any]] = [[], [], [], []]
        for member in members:
            for part, key in zip(
                joined, ("input_sizes", "output_sizes", "input_dtypes", "output_dtypes"), strict=True
            ):
                value = member.get(key)
                part.extend(value if isinstance(value, list) else [])
        own = may_differ(op)
        if own:
            self._pick(joined[0], joined[1])
        row: KindRow = (
            op,
            backend,
            () if own else self.tensors.sizes(joined[0]),
            () if own else self.tensors.sizes(joined[1]),
            self.tensors.types(joined[2]),
            self.tensors.types(joined[3]),
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
                (as_text(f.get("name", "")), as_text(f.get("filename", "")), as_int(f.get("line")))
                for f in frames
                if isinstance(f, dict)
            )
            index = self.stack_by_ids[ids] = self.recording.stack(row)
        return index
