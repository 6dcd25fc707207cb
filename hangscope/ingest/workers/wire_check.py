"""Whether an answer that comes from a file has the shape that this project's own readers give it.

Children are trusted to answer in form; a pack is a file like any other. What passes here can be put together into an
incident without surprises: indexes point at something, numbers are numbers, text is text.
"""

from __future__ import annotations

from typing import Any

from hangscope.events import MAX_ITEMS, is_number, is_rank, is_text, problem_of
from hangscope.incident import State
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.recorder.interning import Interner
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.own_sizes import OwnSizes, may_differ
from hangscope.ingest.recorder.recording import KindRow, Recording
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.ingest.workers.reading import Reading


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
        problem = problem_of(event)
        _require(not problem, problem)
    for communicator in reading.communicators:
        _check_communicator(communicator)
    if reading.log is not None:
        _check_log(reading.log)
    for note in reading.notes:
        _require(
            all(map(is_text, (note.code, note.message, note.hint)))
            and (note.file is None or is_text(note.file))
            and (note.line is None or is_number(note.line)),
            "a note",
        )
    for thread in reading.threads:
        _require(
            isinstance(thread.name, str)
            and isinstance(thread.is_main, bool)
            and is_rank(thread.rank)
            and (thread.pid is None or is_number(thread.pid))
            and all(_is_frame((f.name, f.file, f.line)) for f in thread.stack),
            "a thread",
        )


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise BadAnswer(f"not of the form that hangscope writes: {what}")


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
        is_rank(recording.rank)
        and (recording.host is None or is_text(recording.host))
        and is_text(recording.source)
        and is_text(recording.version),
        "whose it is",
    )
    _require(recording.pid is None or is_number(recording.pid), "a process id")
    _require(recording.attempt is None or is_number(recording.attempt), "an attempt")
    _require(
        all(len(g) == 3 and all(isinstance(part, str) for part in g) for g in recording.groups), "a group"
    )
    for name, (desc, ranks) in recording.config.items():
        _require(isinstance(name, str) and isinstance(desc, str), "a group's name")
        _require(
            ranks is None
            or (len(ranks) <= MAX_RANKS and all(type(r) is int and 0 <= r < MAX_RANKS for r in ranks)),
            "members",
        )
    for local_id, status in recording.status.items():
        _require(
            isinstance(local_id, str) and len(status) == 3 and all(map(is_number, status)),
            "a group's status",
        )
    _require(
        all(isinstance(stack, tuple) and all(_is_frame(f) for f in stack) for stack in recording.stacks),
        "a stack",
    )
    _require(all(_is_kind(row) for row in recording.kinds), "a kind of call")
    if recording.own_sizes is not None:
        _check_own_sizes(recording, recording.own_sizes)


def _check_own_sizes(recording: Recording, own: OwnSizes) -> None:
    differ = [row[6] is None and may_differ(row[0]) for row in recording.kinds]
    _require(
        sum(differ[kind] for kind in recording.columns["kind"]) == len(own.picks), "calls with own sizes"
    )
    _require(
        isinstance(own.forms, list)
        and all(isinstance(both, tuple) and len(both) == 2 and _is_sizes(both) for both in own.forms)
        and all(n >= 0 for both in own.forms for part in both for n in part)
        and own.consistent,
        "sizes",
    )


def _is_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(
        isinstance(shape, tuple) and all(map(is_number, shape)) for shape in value
    )


def _is_frame(row: Any) -> bool:
    return (
        isinstance(row, tuple)
        and len(row) == 3
        and isinstance(row[0], str)
        and isinstance(row[1], str)
        and is_number(row[2])
    )


def _is_kind(row: KindRow) -> bool:
    if not isinstance(row, tuple) or len(row) != 10:
        return False
    op, backend, sizes_in, sizes_out, types_in, types_out, src, dst, stack, root = row
    sizes = _is_sizes(sizes_in) and _is_sizes(sizes_out)
    types = (
        isinstance(types_in, tuple)
        and isinstance(types_out, tuple)
        and all(isinstance(t, str) for t in (*types_in, *types_out))
    )
    numbers = all(n is None or is_number(n) for n in (src, dst, root)) and is_number(stack)
    return isinstance(op, str) and isinstance(backend, str) and sizes and types and numbers


def _check_log(log: LogReading) -> None:
    numbers = (log.rank, log.local_rank, *log.local_to_global.values(), *(n for _, n in log.local_to_global))
    _require(all(map(is_rank, numbers)), "whose a log is")
    _require(log.attempt is None or is_number(log.attempt), "a log's attempt")
    _require(is_number(log.lines) and is_number(log.size), "a log's length")
    _require(all(is_text(host) for host, _ in log.local_to_global), "a log's host")
    _require(len(log.tail) <= MAX_ITEMS and all(map(is_text, log.tail)), "a log's last lines")


def _check_communicator(comm: Communicator) -> None:
    texts = (comm.file, comm.host, comm.pointer, comm.local_id, comm.name, comm.phase, comm.version)
    _require(all(map(is_text, texts)), "a communicator's text")
    maybe = (comm.bus_id, comm.comm_id, comm.parent, comm.api, comm.ip, comm.network)
    _require(all(text is None or is_text(text) for text in maybe), "a communicator's text")
    numbers = (comm.pid, comm.cuda_dev, comm.split, comm.color, comm.task)
    _require(all(n is None or is_number(n) for n in numbers), "a communicator's numbers")
    counts = (comm.children, comm.calls, comm.first_line, comm.last_line)
    _require(all(map(is_number, counts)), "a communicator's counts")
    _require(is_rank(comm.comm_rank) and is_rank(comm.task), "a communicator's rank")
    _require(
        comm.nranks is None or (type(comm.nranks) is int and 0 <= comm.nranks <= MAX_RANKS),
        "a communicator's ranks",
    )
    flags = (comm.assumed, comm.completed, comm.intact, comm.split_printed)
    _require(all(isinstance(flag, bool) for flag in flags), "a communicator's state")
