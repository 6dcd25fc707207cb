"""Logs in which most lines are calls: read from the bytes, writer by writer, within a bound on the calls that are kept.

What precedes a call repeats for each writer, so it is parsed once. DETAIL's lines (`torch_logs/detail.py`)
and NCCL's COLL lines (`nccl/line.py`) are read this way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.recorder.recording import Recording

#: How many calls all writers of one input may keep; the oldest of each writer go first.
CALL_BUDGET = 1_500_000
LEAST_KEPT = 2_048
MOST_REMEMBERED = 16_384  # heads and calls
_HEAD = 300  # bytes in which the head of a line ends


class CallParser(LineParser):
    """Reads lines of calls in bulk. `whole` matches a line from `mark` to its line feed; the head precedes it."""

    mark: bytes
    whole: re.Pattern[bytes]

    def __init__(self, file: str = "") -> None:
        self._file = file
        self._heads: dict[bytes, Any] = {}

    def run(self, block: bytes, start: int, number: int) -> int:
        """Read as many calls as follow each other from `start` on, the beginning of line `number`.

        Returns where the first line begins that is to be read like any other: `start` itself where this one is.
        """
        heads, mark, match, add = self._heads, self.mark, self.whole.match, self.add
        while True:
            at = block.find(mark, start, start + _HEAD)
            found = match(block, at) if at >= 0 else None
            if found is None:
                return start
            head = block[start:at]
            writer = heads.get(head)
            if writer is None:
                writer = self._writer_of_head(head, found[0], number)
            if writer is None or not add(writer, found, number):
                return start
            start = found.end()
            number += 1

    def _writer_of_head(self, head: bytes, rest: bytes, number: int) -> Any:
        if b"\n" in head or b"\r" in head:
            return None  # the line ends before the mark
        text = (head + rest).decode("utf-8", "replace").rstrip()
        writer = self.writer(strip_prefix(text, number, self._file))
        if writer is not None:
            if len(self._heads) >= MOST_REMEMBERED:
                self._heads.clear()
            self._heads[head] = writer
        return writer

    def writer(self, line: Line) -> Any:
        """Return who wrote a line; None where the line must be read like any other."""
        raise NotImplementedError

    def add(self, writer: Any, found: re.Match[bytes], number: int) -> bool:
        """Add the call that `whole` matched; return False where the line must be read like any other."""
        raise NotImplementedError


def most_kept(writers: int) -> int:
    """Return how many calls each of so many writers may keep."""
    return max(LEAST_KEPT, CALL_BUDGET // (2 * max(1, writers)))


def without_calls(recording: Recording) -> Recording:
    """Return an empty recording of the same process."""
    fields = ("source", "version", "rank", "host", "pid", "attempt", "local_rank", "task")
    return Recording(**{name: getattr(recording, name) for name in fields})


def copy_calls(old: Recording, places: Sequence[tuple[Recording, int]], start: int = 0) -> None:
    """Append the calls from `start` on to other recordings: `places` has a recording and its group for each group of `old`."""
    columns = [old.columns[name][start:] for name in ("group", "seq", "kind", "state", "created", "order")]
    for group, seq, kind, state, created, order in zip(*columns, strict=True):
        new, place = places[group]
        kind = new.kind(old.kinds[kind])
        new.add(group=place, seq=seq, kind=kind, state=state, created=created, order=order)


def last_calls(old: Recording, count: int, note: Note) -> Recording:
    """Return a recording with the last calls and only the kinds that they use, and a note about it."""
    new = without_calls(old)
    copy_calls(old, [(new, new.group(*group)) for group in old.groups], len(old) - count)
    new.notes = [note]
    return new
