"""NCCL and RCCL debug logs: warnings and the life of communicators as events, COLL lines as recordings.

One parser reads one input, which may hold one process or all processes of a job interleaved. The forms of the lines are in
`line`, `comm`, `calls` and `warn`, what is known of a process in `process`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.call_lines import MOST_REMEMBERED, CallParser
from hangscope.ingest.lines.prefixes import AnyEvent, Line
from hangscope.ingest.nccl import warn
from hangscope.ingest.nccl.comm import Communicator, NcclInit, parse_life
from hangscope.ingest.nccl.line import (
    DAMAGED_COLL,
    INFO,
    LITERALS,
    WHOLE_LINE,
    CollLine,
    NcclLine,
    banner_version,
    parse_coll,
    parse_line,
)
from hangscope.ingest.nccl.process import Process, Processes
from hangscope.ingest.nccl.ras_json import NcclRas
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.events import Event
from hangscope.model.regex import regex

MAX_COMMUNICATORS = 262_144  # bounds what a hostile file can make the parser keep
_NS = 1_000_000_000
#: What a process states outside of the life of a communicator: its address and network, a split that it does not join, a dead peer.
_PROGRESS = regex(
    r"Bootstrap ?: Using (?:[\w.@\-]{1,64}:)?(?P<ip>[0-9a-fA-F.:%\w]{2,64}?)<\d{1,5}>"
    r"|Using network (?P<network>[\w .\-]{1,64})"
    r"|Rank (?P<uncolored>\d{1,7}) has color with NCCL_SPLIT_NOCOLOR"
    r"|RAS declaring peer (?P<dead>[^\s<>]{1,255})(?:<\d{0,5}>)? as DEAD"
)
_APART = "write NCCL logs with NCCL_DEBUG_FILE, one file per process"


class NcclParser(CallParser):
    """Reads the lines of one input; yields NcclInit, NcclWarn and NcclRas events.

    After `close`: `recordings()`, `communicators()` and `notes`.
    """

    literals = LITERALS
    mark = INFO
    whole = WHOLE_LINE

    def __init__(self) -> None:
        super().__init__()
        self._notes: dict[str, Note] = {}
        self._processes = Processes()
        self._calls: dict[tuple[bytes, ...], CollLine] = {}
        self._made = 0
        self._version = ""

    @property
    def notes(self) -> list[Note]:
        """Return one note of each kind."""
        return list(self._notes.values())

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the events in one line."""
        self._file = line.file
        messages = parse_line(line.text)
        if not messages:
            self._version = banner_version(line.text) or self._version
        return [event for message in messages for event in self._message(message, line)]

    def writer(self, line: Line) -> tuple[Process, int] | None:
        """Return the process that printed a line, and when (ns; 0: not known)."""
        messages = parse_line(line.text)
        if not self._file or len(messages) != 1 or messages[0].pid is None or messages[0].truncated:
            return None
        process = self._processes.of(messages[0], line)
        return (process, _when(line)) if process is not None and process.host == messages[0].host else None

    def add(self, writer: tuple[Process, int], found: re.Match[bytes], number: int) -> bool:
        """Add a call on a known communicator."""
        name, op_count, key, _, _, _, pointer, nranks, _ = found.groups()
        call = self._calls.get((name, key, pointer, nranks))
        if call is None:
            call = CollLine.of([group.decode() if group else None for group in found.groups()])
            if call is None:
                return False
            if len(self._calls) >= MOST_REMEMBERED:
                self._calls.clear()
            self._calls[(name, key, pointer, nranks)] = call
        process, created = writer
        if call.pointer not in process.live:
            return False
        call.op_count = int(op_count, 16)
        process.record(call, number, created, self._processes.keep)
        return True

    def close(self) -> Iterable[Event]:
        """Settle the names of communicators; no event waits for the end."""
        for process in self._processes:
            process.version = process.version or self._version
            process.finish()
        recorders = [process for process in self._processes if len(process.recording)]
        if any(process.late for process in recorders):
            text = "the log begins after communicators were created; their calls are numbered from its start"
            self._note("late_start", text)
        if any(process.pid is None for process in recorders):
            text = "lines without host and pid; they are distinguished by device only"
            self._note("anonymised", text)
        if len(recorders) > 1:
            text = "several processes share this output, which NCCL 2.13+ does not flush: up to 4,096 bytes may be missing at the end of each"
            self._note("shared_output", text, hint=_APART)
        return ()

    def recordings(self) -> list[Recording]:
        """Return the recordings of all processes that have a communicator, in the order of their first lines."""
        return [recording for process in self._processes for recording in process.recordings()]

    def communicators(self) -> list[Communicator]:
        """Return every communicator of every process, in the order of creation per process."""
        return [comm for process in self._processes for comm in process.communicators]

    def _message(self, message: NcclLine, line: Line) -> Iterator[Event]:
        damaged = DAMAGED_COLL.match(message.message)
        if damaged is not None:
            self._call(parse_coll(message.message), damaged[1], message, line)
            return
        process = self._processes.of(message, line)
        if process is None:
            return
        if message.level == "INFO":
            yield from self._info(message.message, line, process)
        fields = warn.classify(message)
        if fields is not None and not (
            message.level == "INFO" and fields["fault"] == "other" and process.traced
        ):
            process.traced = process.traced or message.level == "INFO"
            yield _event(line, process, warn.NcclWarn, **fields)

    def _call(self, call: CollLine | None, pointer: str | None, message: NcclLine, line: Line) -> None:
        process = self._processes.of(message, line)
        if process is None:  # its head was cut off: whoever owns the pointer has lost a call
            owners = [owner for owner in self._processes if pointer in owner.live]
        elif call is None or message.truncated or message.host != process.host:
            owners = [process]
        else:
            known = call.pointer in process.live
            if known or self._has_room(line):
                self._made += not known
                process.device = message.dev
                process.record(call, line.number, _when(line), self._processes.keep)
            return
        for owner in owners:
            owner.tear(pointer)
            text = "an NCCL call line is torn or collapsed; the calls after it cannot be numbered for certain"
            self._note("torn_line", text, line, _APART)

    def _info(self, text: str, line: Line, process: Process) -> Iterator[Event]:
        life = parse_life(text)
        found = _PROGRESS.match(text) if life is None else None
        if life is not None:
            if int(life["comm_rank"]) >= int(life["nranks"]):
                text = "a line states a rank that its communicator cannot have"
                self._note("contradiction", text, line, "copy the log again from where the job wrote it")
            elif self._has_room(line):
                comm = process.step(life, line.number)
                self._made += comm.first_line == line.number
                fields = {"step": comm.step, "nranks": comm.nranks, "bus_id": comm.bus_id}
                yield _event(line, process, NcclInit, comm.comm_rank, **fields)
        elif found is None:
            if (version := banner_version(text)) is not None:
                process.version = self._version = version
        elif found["ip"]:
            if process.ip is None:
                yield _event(line, process, NcclInit)
            process.ip = found["ip"]
        elif found["network"]:
            process.network = found["network"]
        elif found["dead"]:
            yield _event(line, process, NcclRas, what="dead", peer_host=found["dead"])
        else:
            process.skip_split(int(found["uncolored"]))

    def _has_room(self, line: Line) -> bool:
        if self._made >= MAX_COMMUNICATORS:
            text = f"more than {MAX_COMMUNICATORS:,} communicators; the rest is not read"
            self._note("too_many_communicators", text, line)
        return self._made < MAX_COMMUNICATORS

    def _note(self, code: str, text: str, line: Line | None = None, hint: str = "") -> None:
        place = line.number if line is not None else None
        self._notes.setdefault(code, Note(code, text, self._file, place, hint))


def _when(line: Line) -> int:
    return int(line.time * _NS) if line.time else 0


def _event(
    line: Line, process: Process, kind: type[AnyEvent], group_rank: int | None = None, **fields: Any
) -> AnyEvent:
    """Return an event of a process, whose host and number win over those of the line's prefix."""
    event = line.event(kind, group_rank, **fields)
    host, pid = process.host or line.host, process.pid if process.pid is not None else line.pid
    return replace(event, host=host, pid=pid)
