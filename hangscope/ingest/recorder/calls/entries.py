"""The entries of a recorder's dump as rows of a Recording."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from sys import intern  # one object for equal texts: their pickled bytes tell what two dumps share
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.recorder.calls.coalesced import (
    COALESCED_END,
    Batch,
    batches_without_end,
    coalesced_batches,
    end_key,
)
from hangscope.ingest.recorder.calls.own_sizes import OwnSizes, may_differ
from hangscope.ingest.recorder.calls.rows import Call, Name, Row, SameCalls
from hangscope.ingest.recorder.calls.stack_rows import StackRows, Stacks
from hangscope.ingest.recorder.odd_values import Oddities, look_at_entry, look_at_numbers, look_at_seqs
from hangscope.ingest.recorder.recording import COLUMNS, COMPLETED, KindRow, Recording
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
from hangscope.model.incident import State


def names_a_call(entry: Any) -> bool:
    """Return whether an entry says what was called and on which group; less is no record of a call."""
    return (
        isinstance(entry, dict)
        and isinstance(entry.get("profiling_name"), str)
        and ("pg_id" in entry or "process_group" in entry)
    )


class Entries:
    """Turns entries into rows. One instance per dump; caches what entries share."""

    def __init__(self, recording: Recording, stacks: Stacks | None = None) -> None:
        """`stacks`: those of other dumps, whose frames it keeps."""
        self.recording = recording
        self.stacks = StackRows(recording, Stacks() if stacks is None else stacks)
        self.kind_by_parts: dict[Any, int] = {}
        self.names: dict[str, Name] = {}
        self.places: dict[Any, tuple[str, int]] = {}
        self.tensors = Tensors()
        self.own_sizes = OwnSizes()
        self.own_by_key: dict[Any, int] = {}
        self.kept: Sequence[int] = ()  # which of the entries became calls
        self.oddities = Oddities()

    def reduce(self, entries: list[Any], *, completions: bool = False) -> None:
        """Add the rows of a dump's entries, oldest first, to the recording, if wanted with the times of their completion."""
        same, calls, numbers, own = SameCalls(self.call), list[Call](), list[int](), list[int]()
        for position, entry in enumerate(entries):
            if not names_a_call(entry):
                continue
            call = same.of(entry)
            calls.append(call)
            numbers += _numbers(entry, position)
            if call.own:
                own.append(self.own(entry.get("input_sizes"), entry.get("output_sizes")))
        if len(calls) < len(entries):
            what = f"{len(entries) - len(calls)} of {len(entries)} entries are not recorder entries and were skipped"
            self.recording.notes.append(Note("malformed_entries", what))
        self.add(calls, numbers, own, bool(calls) and calls[-1].entry is not entries[-1])
        if completions:
            called = [entry for entry in entries if names_a_call(entry)]
            times = (as_int(called[place].get("time_discovered_completed_ns")) for place in self.kept)
            self.recording.columns[COMPLETED] = array("q", times)

    def add(
        self, calls: Sequence[Call], numbers: Sequence[int], own: Sequence[int], cut: bool = False
    ) -> None:
        """Add entries, oldest first, to the recording.

        `numbers`: order, seq, p2p_seq and created of each, one after the other; `own`: the numbers of the sizes of those
        that have them; `cut`: whether other entries stand behind them.
        """
        names, different = self.names.values(), dict.fromkeys(calls)
        look_at_numbers(
            numbers,
            self.oddities,
            whole=any(c.state == State.DONE or c.name.backend == "gloo" for c in different),
        )
        members = any(name.ends_batch or name.backend == "gloo" for name in names) or any(
            call.is_p2p for call in different
        )
        if members:
            self._add_one_by_one(_rows(calls, numbers, own), cut)
        else:
            for call in different:
                self._kind(call)
            columns = self.recording.columns
            parts = {
                "group": [call.group for call in calls],
                "seq": numbers[1::4],
                "kind": [call.kind for call in calls],
                "state": [call.state for call in calls],
                "created": numbers[3::4],
                "order": numbers[0::4],
            }
            for key, column in parts.items():
                columns[key].extend(array(COLUMNS[key], column))  # of a list it would take each by itself
            self.own_sizes.picks.extend(own)
            self.kept = range(len(calls))
        columns, kinds = self.recording.columns, self.recording.kinds
        is_p2p = [kind[6] is not None for kind in kinds]
        sides = [is_p2p[kind] for kind in columns["kind"]] if True in is_p2p else []
        look_at_seqs(columns["group"], columns["seq"], sides, self.oddities)
        if (odd := self.oddities.note()) is not None:
            self.recording.notes.append(odd)
        if self.own_sizes.picks:
            self.recording.own_sizes = self.own_sizes
        if self.tensors.cut:
            self.recording.notes.append(
                Note("sizes_cut", "its calls have more and larger shapes than are kept; some were left out")
            )

    def _add_one_by_one(self, rows: Sequence[Row], cut: bool) -> None:
        """Add rows of which some may be members of a batch, or whose state is told by others."""
        ends = coalesced_batches(rows) if any(name.ends_batch for name in self.names.values()) else {}
        lost_ends = batches_without_end(rows, ends)
        last_on_gloo: dict[str, int] = {}
        columns = self.recording.columns
        kept = self.kept = []
        rows_done: set[tuple[str, int]] = set()
        for position, row in enumerate(rows):
            call = row.call
            is_p2p, seq = call.is_p2p, row.number(call.is_p2p)
            if ends and call.name.ends_batch:
                is_p2p, seq = end_key(ends, row)
            batch = ends.get((call.local_id, is_p2p, seq)) if ends else None
            state = call.state
            if batch is not None:
                if batch.end is row and is_p2p and batch.members:
                    continue  # the end entry of a batch of sends and receives is no call of its own
                if not is_p2p:
                    if (call.local_id, seq) in rows_done:
                        continue
                    rows_done.add((call.local_id, seq))
                    kind = self._batch_kind(batch, call.name.backend)
                else:
                    kind = self._kind_of(row)
                state = batch.state
            else:
                kind = self._kind_of(row)
                if (
                    lost_ends
                    and (call.local_id, seq) in lost_ends
                    and is_p2p
                    and call.name.backend == "nccl"
                    and (cut or position < len(rows) - 1)
                ):
                    state = State.DONE
            if call.name.backend == "gloo":
                state = State.DONE if call.entry.get("retired") else State.PENDING
                last_on_gloo[call.local_id] = len(columns["seq"])
            kept.append(position)
            self.recording.add(
                group=call.group, seq=seq, kind=kind, state=state, created=row.created, order=row.order
            )
        for place in last_on_gloo.values():
            if columns["state"][place] == State.DONE:
                columns["state"][place] = int(State.UNKNOWN)

    def call(self, entry: dict[str, Any]) -> Call:
        """Return what an entry has in common with others."""
        look_at_entry(entry, self.oddities)
        return self.call_of(entry, entry.get("process_group"), entry.get("frames"))

    def call_of(self, entry: dict[str, Any], process_group: Any, frames: Any) -> Call:
        """Return the call of an entry without looking for oddities; its group and its frames are those given."""
        raw = entry["profiling_name"]
        name = self.names.get(raw)
        if name is None:
            backend, _, op = as_text(raw).rpartition(":")
            is_p2p, ends = "->" in raw or "<-" in raw, COALESCED_END.search(raw) is not None
            differ = not is_p2p and may_differ(user_op(op))
            name = self.names[raw] = Name(backend, op, is_p2p, ends, differ)
        local_id, group = self._place(entry, process_group)
        is_p2p = name.is_p2p or bool(entry.get("is_p2p"))
        return Call(entry, frames, name, is_p2p, local_id, group, int(as_state(entry.get("state"))))

    def own(self, inputs: Any, outputs: Any) -> int:
        """Return the number of a call's own sizes."""
        key = as_key((inputs, outputs))
        index = self.own_by_key.get(key)
        if index is None:
            both = self.tensors.sizes(inputs), self.tensors.sizes(outputs)
            form = tuple(map(len, both[0])), tuple(map(len, both[1]))
            numbers = tuple(number for part in both for shape in part for number in shape)
            # Sizes that are cut may be those of another call.
            index = self.own_by_key.get((form, numbers))
            if index is None:
                index = self.own_by_key[form, numbers] = self.own_sizes.add(form, numbers)
            self.own_by_key[key] = index
        return index

    def _place(self, entry: dict[str, Any], raw: Any) -> tuple[str, int]:
        """Return the local id of an entry's group, and the group's index."""
        key = (entry.get("pg_id"), tuple(raw) if isinstance(raw, list) else raw)
        try:
            place = self.places.get(key)
        except TypeError:  # no version writes unhashable values here
            return self._new_place(entry, raw)
        if place is None:
            place = self.places[key] = self._new_place(entry, raw)
        return place

    def _new_place(self, entry: dict[str, Any], raw: Any) -> tuple[str, int]:
        local_id = as_text(entry.get("pg_id", ""))
        if isinstance(raw, (list, tuple)) and raw:
            return local_id, self.recording.group(
                local_id, as_text(raw[0]), as_desc(raw[1]) if len(raw) > 1 else ""
            )
        # Before `process_group` existed only the local id tells groups apart; 0 is always the default group.
        return local_id, self.recording.group(local_id, local_id or "0", "")

    def _kind_of(self, row: Row) -> int:
        """Return the index of a row's kind; its own sizes are those of the next call."""
        if row.own >= 0:
            self.own_sizes.picks.append(row.own)
        return self._kind(row.call)

    def _kind(self, call: Call) -> int:
        if call.kind < 0:
            get, name = call.entry.get, call.name
            sizes = (None, None) if call.own else (get("input_sizes"), get("output_sizes"))
            types = get("input_dtypes"), get("output_dtypes")
            stack = self.stacks.of(call.frames)
            key = (id(name), call.is_p2p, stack, as_key((*sizes, *types)))
            index = self.kind_by_parts.get(key)
            if index is None:
                src = dst = None
                plain = name.op
                if call.is_p2p:
                    plain, src, dst = p2p_sides(name.op)
                tensors = self.tensors
                row: KindRow = (
                    intern(user_op(plain)), intern(name.backend), tensors.sizes(sizes[0]), tensors.sizes(sizes[1]), tensors.types(types[0]),
                    tensors.types(types[1]), src, dst, stack, None,
                )  # fmt: skip
                index = self.kind_by_parts[key] = self.recording.kind(row)
            call.kind = index
        return call.kind

    def _batch_kind(self, batch: Batch, backend: str) -> int:
        """Return one kind for a coalesced collective: its members' sizes in order, under the end entry's name."""
        assert batch.end is not None
        members = batch.members or [batch.end]
        end_op, member_op = batch.end.call.name.op, members[0].call.name.op
        op = user_op(member_op if end_op.lower() == "coalesced" and batch.members else end_op)
        stack = self.stacks.of(batch.end.call.frames)
        sizes: list[list[Any]] = [[], []]
        types: list[list[Any]] = [[], []]
        for member in members:
            entry = member.call.entry
            told = (entry.get("input_sizes"), entry.get("output_sizes"))
            for part, value in zip(
                sizes, self.own_sizes.of(member.own) if member.own >= 0 else told, strict=True
            ):
                part.extend(value if isinstance(value, (list, tuple)) else [])
            for part, key in zip(types, ("input_dtypes", "output_dtypes"), strict=True):
                value = entry.get(key)
                part.extend(value if isinstance(value, list) else [])
        own = may_differ(op)
        if own:
            self.own_sizes.picks.append(self.own(*sizes))
        tensors = self.tensors
        row: KindRow = (
            intern(op), intern(backend), () if own else tensors.sizes(sizes[0]), () if own else tensors.sizes(sizes[1]), tensors.types(types[0]),
            tensors.types(types[1]), None, None, stack, None,
        )  # fmt: skip
        return self.recording.kind(row)


def _numbers(entry: dict[str, Any], position: int) -> tuple[int, int, int, int]:
    """Return an entry's order, seq, p2p_seq and created."""
    get = entry.get
    seq = as_int(get("collective_seq_id", get("seq_id")))
    p2p_seq = as_int(entry["p2p_seq_id"]) if "p2p_seq_id" in entry else seq
    return as_int(get("record_id"), position), seq, p2p_seq, as_int(get("time_created_ns"))


def _rows(calls: Sequence[Call], numbers: Sequence[int], own: Sequence[int]) -> list[Row]:
    numbered = zip(calls, numbers[0::4], numbers[1::4], numbers[2::4], numbers[3::4], strict=True)
    sizes = iter(own)
    return [Row(*parts, own=next(sizes) if parts[0].own else -1) for parts in numbered]
