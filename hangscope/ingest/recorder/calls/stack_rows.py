"""The stacks of a dump's calls as rows of its Recording."""

from __future__ import annotations

from dataclasses import field
from sys import intern  # one object for equal texts: their pickled bytes tell what two dumps share
from typing import Any, TypeAlias

from hangscope.ingest.recorder.recording import Recording, StackRow
from hangscope.ingest.recorder.values import as_int, as_text
from hangscope.model.dataclass import dataclass

FrameRow: TypeAlias = tuple[str, str, int]


@dataclass(slots=True)
class Stacks:
    """What is known of stacks: rows by the identity of their frames, with the frames, and one object for equal rows."""

    by_ids: dict[tuple[int, ...], tuple[list[Any], StackRow]] = field(default_factory=dict)
    frames: dict[FrameRow, FrameRow] = field(default_factory=dict)


class StackRows:
    """Turns the frames of one dump's entries into rows; what it learns of frames that others may have goes into `known`."""

    def __init__(self, recording: Recording, known: Stacks) -> None:
        self.recording, self.known = recording, known
        self.own_frames: set[int] = set()  # identities of frames that no other dump has
        self._by_ids: dict[tuple[int, ...], int] = {}
        self._frame_rows: dict[int, FrameRow] = {}  # by the identity of the frame
        self._own_rows: dict[FrameRow, FrameRow] = {}

    def of(self, frames: Any) -> int:
        """Return the index of a stack in the recording."""
        if not isinstance(frames, list) or not frames:
            return self.recording.stack(())
        ids = tuple(map(id, frames))  # frame dicts are shared objects in a pickle, and alive while we read it
        index = self._by_ids.get(ids)
        if index is None:
            known = self.known.by_ids.get(ids)
            if known is None:
                known = frames, tuple(self._frame_row(f) for f in frames if isinstance(f, dict))
                if self.own_frames.isdisjoint(ids):
                    self.known.by_ids[ids] = known
            index = self._by_ids[ids] = self.recording.stack(known[1])
        return index

    def _frame_row(self, frame: dict[str, Any]) -> FrameRow:
        row = self._frame_rows.get(id(frame))
        if row is None:
            name, file = as_text(frame.get("name", "")), as_text(frame.get("filename", ""))
            row, shared = (intern(name), intern(file), as_int(frame.get("line"))), self.known.frames
            own = id(frame) in self.own_frames and row not in shared
            row = self._frame_rows[id(frame)] = (self._own_rows if own else shared).setdefault(row, row)
        return row
