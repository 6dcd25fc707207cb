"""Whether an answer that comes from a file has the shape that this project's own readers give it.

Children are trusted to answer in form; a pack is a file like any other. What passes here can be put together into an
incident without surprises: indexes point at something, numbers are numbers, text is text.
"""

from __future__ import annotations

from typing import Any

from hangscope.incident import Event, State
from hangscope.ingest.interning import Interner
from hangscope.ingest.members import MAX_RANKS
from hangscope.ingest.reading import Reading
from hangscope.ingest.recording import KindRow, Recording

MAX_RANK = MAX_RANKS


class BadAnswer(ValueError):
    """An answer is not of the form that the readers give."""


def check_wire(file: str, wire: Any, interner: Interner) -> None:
    """Raise BadAnswer where an answer would not become a proper Reading."""
    try:
        if (
            not isinstance(file, str)
            or not file
            or not isinstance(wire["kind"], str)
            or not isinstance(wire["reason"], str)
        ):
            raise BadAnswer("names are no text")
        if "files" in wire:
            raise BadAnswer("a pack inside a pack")
        if wire["status"] not in ("used", "ignored", "failed"):
            raise BadAnswer("unknown status")
        reading = Reading.from_wire(file, wire, interner)
    except BadAnswer:
        raise
    except Exception as error:  # whatever is missing or of another type
        raise BadAnswer(f"{type(error).__name__}: {error}"[:200]) from None
    in_log = reading.log.recordings if reading.log is not None else []
    for recording in (*reading.recordings, *reading.nccl_recordings, *in_log):
        _check_recording(recording)
    for event in (*reading.events, *(reading.log.events if reading.log is not None else ())):
        _check_event(event)
    for note in reading.notes:
        _require(
            all(isinstance(text, str) for text in (note.code, note.message, note.hint)), "a note is no text"
        )
    for thread in reading.threads:
        _require(
            isinstance(thread.name, str) and all(_is_frame((f.name, f.file, f.line)) for f in thread.stack),
            "a thread",
        )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BadAnswer(f"not of the form that hangscope writes: {what}")


def _is_rank(value: Any) -> bool:
    return value is None or (type(value) is int and 0 <= value < MAX_RANK)


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _check_recording(recording: Recording) -> None:
    columns = recording.columns
    _require(len({len(column) for column in columns.values()}) == 1, "columns of different lengths")
    for name, limit in (
        ("group", len(recording.groups)),
        ("kind", len(recording.kinds)),
        ("state", len(State)),
    ):
        _require(
            not columns[name] or (min(columns[name]) >= 0 and max(columns[name]) < limit),
            f"{name} out of range",
        )
    _require(
        _is_rank(recording.rank) and _is_text(recording.host) and isinstance(recording.source, str),
        "whose it is",
    )
    _require(recording.pid is None or type(recording.pid) is int, "a process id")
    _require(
        all(len(g) == 3 and all(isinstance(part, str) for part in g) for g in recording.groups), "a group"
    )
    for name, (desc, ranks) in recording.config.items():
        _require(isinstance(name, str) and isinstance(desc, str), "a group's name")
        _require(
            ranks is None
            or (len(ranks) <= MAX_RANK and all(type(r) is int and 0 <= r < MAX_RANK for r in ranks)),
            "members",
        )
    for local_id, status in recording.status.items():
        _require(
            isinstance(local_id, str) and len(status) == 3 and all(type(n) is int for n in status),
            "a group's status",
        )
    _require(
        all(isinstance(stack, tuple) and all(_is_frame(f) for f in stack) for stack in recording.stacks),
        "a stack",
    )
    _require(all(_is_kind(row) for row in recording.kinds), "a kind of call")


def _is_frame(row: Any) -> bool:
    return (
        isinstance(row, tuple)
        and len(row) == 3
        and isinstance(row[0], str)
        and isinstance(row[1], str)
        and type(row[2]) is int
    )


def _is_kind(row: KindRow) -> bool:
    if not isinstance(row, tuple) or len(row) != 10:
        return False
    op, backend, sizes_in, sizes_out, types_in, types_out, src, dst, stack, root = row
    sizes = (
        isinstance(sizes_in, tuple)
        and isinstance(sizes_out, tuple)
        and all(
            isinstance(shape, tuple) and all(type(n) is int for n in shape)
            for shape in (*sizes_in, *sizes_out)
        )
    )
    types = (
        isinstance(types_in, tuple)
        and isinstance(types_out, tuple)
        and all(isinstance(t, str) for t in (*types_in, *types_out))
    )
    numbers = all(n is None or type(n) is int for n in (src, dst, root)) and type(stack) is int
    return isinstance(op, str) and isinstance(backend, str) and sizes and types and numbers


def _check_event(event: Event) -> None:
    _require(
        isinstance(event.kind, str) and isinstance(event.file, str) and isinstance(event.text, str),
        "an event's text",
    )
    _require(
        type(event.line) is int and _is_rank(event.rank) and _is_rank(event.group_rank), "an event's numbers"
    )
    _require(_is_text(event.host) and isinstance(event.fields, dict), "an event's fields")
    _require(event.time is None or isinstance(event.time, (int, float)), "an event's time")
