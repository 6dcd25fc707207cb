"""The kinds of a dump's calls: op, sizes, element types and stack, as rows of its Recording."""

from __future__ import annotations

from sys import intern  # equal texts must be one object: pickled bytes are compared to find what dumps share
from typing import Any, TypeAlias

from hangscope.ingest.recorder.calls.call import Call
from hangscope.ingest.recorder.calls.coalesced import Batch
from hangscope.ingest.recorder.calls.own_sizes import Flat, OwnSizes, flat, may_differ
from hangscope.ingest.recorder.plausibility import Implausible, check_frame
from hangscope.ingest.recorder.recording import Recording, StackRow
from hangscope.ingest.recorder.values import Tensors, as_int, as_key, as_text, p2p_sides, user_op

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
            for part, value in zip(
                (*sizes, *types), (*shapes, get("input_dtypes"), get("output_dtypes")), strict=True
            ):
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
        self,
        op: str,
        call: Call,
        sizes: tuple[Any, Any],
        types: tuple[Any, Any],
        src: int | None = None,
        dst: int | None = None,
    ) -> int:
        tensors, stack = self.tensors, self._stack(call.entry.get("frames"))
        shapes = tensors.sizes(sizes[0]), tensors.sizes(sizes[1])
        names = tensors.types(types[0]), tensors.types(types[1])
        return self._recording.kind(
            (intern(op), intern(call.backend), *shapes, *names, src, dst, stack, None)
        )

    def _stack(self, frames: Any) -> int:
        """Return the index of a stack in the recording."""
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
