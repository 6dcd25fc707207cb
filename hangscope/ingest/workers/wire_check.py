"""Whether an answer that comes from a file has the shape that this project's own readers give it.

Children are trusted to answer in form; a pack is a file like any other. What passes here can be put together into an
incident without surprises: indexes point at something, numbers are numbers, text is text.
"""

from __future__ import annotations

from typing import Any, get_type_hints

from hangscope.ingest.recorder.members import MAX_RANKS, Interner
from hangscope.ingest.recorder.recording import Dimensions, Recording, may_differ
from hangscope.ingest.workers.reading import Reading
from hangscope.model.codec import ShapeError, from_row, is_rank
from hangscope.model.incident import State

_TYPES = {
    name: hint
    for name, hint in get_type_hints(Recording).items()
    if not name.startswith("_") and name not in ("columns", "notes", "own_sizes", "config")
}


class BadAnswer(ValueError):
    """An answer is not of the form that the readers give."""


def check_wire(file: str, wire: Any, interner: Interner) -> None:
    """Raise BadAnswer where an answer would not become a proper Reading."""
    try:
        _of_type(list[str], [file, wire["kind"], wire["reason"]], "names")
        _require(bool(file), "a name")
        if "files" in wire:
            raise BadAnswer("a pack inside a pack")
        if wire["status"] not in ("used", "ignored", "failed"):
            raise BadAnswer("unknown status")
        reading = Reading.from_wire(file, wire, interner)
    except BadAnswer:
        raise
    except Exception as error:  # whatever is missing or of another type
        raise BadAnswer(f"{type(error).__name__}: {error}"[:200]) from None
    log = reading.log
    for recording in (*reading.recordings, *log.nccl, *log.recordings):
        _check_recording(recording)
    _require(all(is_rank(e.rank) and is_rank(e.group_rank) for e in reading.all_events), "an event's rank")
    for communicator in log.communicators:
        few = communicator.nranks is None or 0 <= communicator.nranks <= MAX_RANKS
        _require(few and is_rank(communicator.comm_rank), "a communicator's ranks")
    _require(all(is_rank(process.rank) for process in reading.stacks), "a process's rank")
    _require(is_rank(log.rank) and is_rank(log.local_rank), "whose a log is")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BadAnswer(f"not of the form that hangscope writes: {what}")


def _of_type(kind: Any, value: Any, what: str) -> None:
    try:
        from_row(kind, value)
    except ShapeError:
        _require(False, what)


def _check_recording(recording: Recording) -> None:
    columns = recording.columns
    for name, hint in _TYPES.items():
        _of_type(hint, getattr(recording, name), f"{name} of a recording")
    _of_type(dict[str, str], {name: desc for name, (desc, _) in recording.config.items()}, "groups")
    _require(len({len(column) for column in columns.values()}) == 1, "columns of different lengths")
    limits = {"group": len(recording.groups), "kind": len(recording.kinds), "state": len(State)}
    for name, limit in limits.items():
        inside = not columns[name] or (min(columns[name]) >= 0 and max(columns[name]) < limit)
        _require(inside, f"{name} out of range")
    _require(is_rank(recording.rank) and is_rank(recording.task), "a recording's rank")
    members = [ranks for _, ranks in recording.config.values() if ranks is not None]
    _require(all(len(m) <= MAX_RANKS and all(0 <= r < MAX_RANKS for r in m) for m in members), "members")
    if (own := recording.own_sizes) is not None:
        differ = [row[6] is None and may_differ(row[0]) for row in recording.kinds]
        _require(sum(differ[kind] for kind in columns["kind"]) == len(own.picks), "calls with own sizes")
        _of_type(list[Dimensions], own.forms, "sizes")
        _require(own.consistent, "sizes")
