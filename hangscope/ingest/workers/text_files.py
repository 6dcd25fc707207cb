"""Read a file of text: a log, a stack dump, an answer of NCCL's RAS, or a log that holds the other two as well.

What a process prints last stands in one file: the watchdog's lines, what it said when it was aborted, and the stacks that
faulthandler dumped. So a file that looks like stacks or like RAS is read as a log too, and the answers are put together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

from hangscope.errors import Note
from hangscope.ingest.workers.answer import Wire, answer
from hangscope.model.codec import to_fields, to_row
from hangscope.model.incident import Event

if TYPE_CHECKING:
    from hangscope.ingest.stacks.dumps import ProcessStacks
    from hangscope.ingest.workers.log_reading import LogReading


def read_log(stream: BinaryIO, shown: str) -> Wire:
    """Return what a log tells."""
    return _read_log(stream, shown)[0]


def read_stacks(stream: BinaryIO, shown: str) -> Wire:
    """Return the threads of a stack dump, and what else its process printed."""
    from hangscope.ingest.stacks.dumps import read_processes

    told = answer("stacks")
    processes = read_processes(stream, shown)
    stream.seek(0)
    log, reading = _read_log(stream, shown)
    told["threads"] = _thread_rows(processes)
    return _with_log(told, log, reading)


def _read_log(stream: BinaryIO, shown: str) -> tuple[Wire, LogReading]:
    """Return what a log tells as builtins, and as what was read."""
    from hangscope.ingest.nccl.log import NcclParser
    from hangscope.ingest.stacks.late import LateStackParser
    from hangscope.ingest.workers import log_reading

    nccl, late = NcclParser(), LateStackParser()
    told = answer("log")
    reading = log_reading.read_log(stream, shown, (nccl, late))
    told["log"] = to_fields(reading)
    told["threads"] = _thread_rows(late.processes())
    told["notes"] = to_row(nccl.notes)
    told["nccl"] = {
        "recordings": [recording.to_wire() for recording in nccl.recordings()],
        "communicators": to_row(nccl.communicators()),
    }
    return told, reading


def _thread_rows(processes: Sequence[ProcessStacks]) -> list[tuple[Any, ...]]:
    return [
        (name, to_row(stack), main, process.rank, process.pid, process.local_rank, process.task, number)
        for number, process in enumerate(processes)
        for name, stack, main in process.threads
    ]


def read_ras(stream: BinaryIO, shown: str) -> Wire:
    """Return the snapshots of an answer of RAS, and what else was printed beside it."""
    from hangscope.ingest.nccl.ras.json_form import read_json
    from hangscope.ingest.nccl.ras.text_form import read_text

    text = stream.read().decode("utf-8", "replace")
    events, notes = read_json(text, shown) if text.lstrip()[:1] == "{" else read_text(text, shown)
    stream.seek(0)
    told = with_events("ras", events, notes)
    return _with_log(told, *_read_log(stream, shown))


def read_inspector(stream: BinaryIO, shown: str) -> Wire:
    """Return what NCCL's Inspector wrote of the calls that ended."""
    from hangscope.ingest.nccl.ras import inspector

    return with_events("inspector", *inspector.read(stream, shown))


def with_events(kind: str, events: Sequence[Event], notes: list[Note]) -> Wire:
    """Return an answer of events alone."""
    told = answer(kind)
    told["events"] = to_row(list(events))
    told["notes"] = to_row(notes)
    return told


def tells(told: Wire) -> bool:
    """Return whether a log tells more of a job than how far its loop came, which any text may seem to tell."""
    log, nccl = told["log"], told["nccl"]
    if log is None:
        return False
    return bool(
        told["threads"]
        or told["recordings"]
        or log["recordings"]
        or nccl["recordings"]
        or nccl["communicators"]
        or any(row[0] not in ("progress", "printed", "loop_length") for row in log["events"])
    )


def _with_log(told: Wire, log: Wire, reading: LogReading) -> Wire:
    """Return the answer with what the same file says as a log; the log's alone where there is nothing else."""
    if not told["threads"] and not told["events"]:
        told_of = tells(log) or told["kind"] == "stacks" or (log["log"] and log["log"]["of_a_job"])
        return log if told_of else told
    log["threads"], told = [], {**told, "threads": told["threads"] or log["threads"]}
    # gdb's Python frames look like those of a traceback without an end
    log["log"]["events"] = to_row([e for e in reading.events if not getattr(e, "truncated", False)])
    sides = getattr(reading.excerpt, "sides", ())
    if not tells(log) and not sides:
        return told
    recordings = told["recordings"] or log["recordings"]
    return {
        **told,
        "recordings": recordings,
        "log": log["log"],
        "nccl": log["nccl"],
        "notes": [*told["notes"], *log["notes"]],
    }
