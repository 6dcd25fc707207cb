"""NCCL and RCCL debug logs: warnings and communicator life cycles as events, COLL lines as recordings.

One parser reads one input, which may hold one process or all processes of a job interleaved; `processes` tells them apart.
The grammar of the lines is in `line`, `init`, `warn` and `calls`, what is known of a process in `process` and `life`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangscope.errors import Note
from hangscope.ingest.lines.forms import BulkParser
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.nccl import calls, init, warn
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.init import (
    count_split_without_color,
    describe,
    event_of,
    passed_bootstrap,
    step_of,
)
from hangscope.ingest.nccl.line import LITERALS, NcclLine, banner_version, parse_line
from hangscope.ingest.nccl.process import Process, Processes, joined_to_a_cut_head
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.events import Event
from hangscope.model.regex import regex

# Bounds on what a hostile file can make the parser keep.
MAX_COMMUNICATORS = 262_144
_MAX_NOTES = 50

_NS = 1_000_000_000
_INFO = b" NCCL INFO "
_HEAD = 300  # bytes of a line's head that are looked at
_MOST_KNOWN = 16_384
_RAS_DEAD = regex(r"RAS declaring peer (?P<peer>[^\s<>]{1,255})(?:<\d{0,5}>)? as DEAD")


class NcclParser(BulkParser):
    """Reads the lines of one input; a `LineParser`.

    Yields NcclInit, NcclWarn and NcclRas events. After `close`: `recordings()`, `communicators()`
    and `notes`.
    """

    literals = LITERALS

    def __init__(self) -> None:
        self.notes: list[Note] = []
        self._processes = Processes()
        self._heads: dict[bytes, tuple[Process, int]] = {}
        self._known_calls: dict[tuple[bytes, bytes, bytes], calls.CollLine] = {}
        self._made = 0
        self._torn = 0
        self._version = ""

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the events in one line."""
        messages = parse_line(line.text)
        if not messages:
            self._version = banner_version(line.text) or self._version
            return ()
        return [event for message in messages for event in self._message(message, line)]

    def run(self, block: bytes, start: int, number: int) -> int:
        """Read the COLL lines that follow each other from `start` on; see `BulkParser`."""
        heads, known, match = self._heads, self._known_calls, calls.WHOLE_LINE.match
        keep = self._processes.keep
        while True:
            at = block.find(_INFO, start, start + _HEAD)
            found = match(block, at + len(_INFO)) if at >= 0 else None
            if found is None:
                return start
            head = block[start:at]
            told = heads.get(head)
            if told is None:
                told = self._known_head(head, block[start : found.end()], number)
                if told is None:
                    return start
                keep = self._processes.keep
            process, created = told
            name, op_count, key, tail = found.groups()
            call = known.get((name, key, tail))
            if call is None:
                call = self._known_call(found[0])
                if call is None:
                    return start
            if call.pointer not in process.live:
                return start  # its communicator is new: the line is read like any other
            call.op_count = int(op_count, 16)
            process.record(call, number, created, keep)
            start = found.end()
            number += 1

    def _known_head(self, head: bytes, whole: bytes, number: int) -> tuple[Process, int] | None:
        """Return whose lines begin with these bytes and when (ns); None where the line is to be read like any other."""
        if not self._processes or b"\n" in head or b"\r" in head:
            return None  # the first line tells the file's name; another line may stand before the head
        file = next(iter(self._processes)).file
        line = strip_prefix(whole.decode("utf-8", "replace").rstrip(), number, file)
        messages = parse_line(line.text)
        if len(messages) != 1 or messages[0].pid is None or messages[0].truncated:
            return None
        process = self._processes.of(messages[0], line)
        if process is None or joined_to_a_cut_head(messages[0], process):
            return None
        if len(self._heads) >= _MOST_KNOWN:
            self._heads.clear()
        told = self._heads[head] = (process, int(line.time * _NS) if line.time else 0)
        return told

    def _known_call(self, message: bytes) -> calls.CollLine | None:
        call = calls.parse_coll(message.decode("ascii", "replace").rstrip())
        if call is None:
            return None
        if len(self._known_calls) >= _MOST_KNOWN:
            self._known_calls.clear()
        found = calls.WHOLE_LINE.match(message)
        if found is not None:
            self._known_calls[(found[1], found[3], found[4])] = call
        return call

    def close(self) -> Iterable[Event]:
        """Settle the names of communicators; no event waits for the end."""
        for process in self._processes:
            process.version = process.version or self._version
            process.finish()
        self._closing_notes()
        return ()

    def recordings(self) -> list[Recording]:
        """Return one recording per process that has a communicator, in the order of their first lines."""
        return [recording for process in self._processes for recording in process.recordings()]

    def communicators(self) -> list[Communicator]:
        """Return every communicator of every process, in the order of creation per process."""
        return [comm for process in self._processes for comm in process.communicators]

    def _message(self, message: NcclLine, line: Line) -> Iterator[Event]:
        call = calls.parse_coll(message.message)
        if call is not None or calls.is_coll(message.message):
            self._call(call, message, line)
            return
        process = self._processes.of(message, line)
        if process is None:
            return
        if message.level == "INFO":
            yield from self._info(message, line, process)
        fields = warn.classify(message)
        if fields is None and message.level == "INFO" and not process.traced:
            fields = warn.traceback_result(message.message)
            process.traced = fields is not None
        if fields is not None:
            yield event_of(line, process, warn.NcclWarn, fields)

    def _call(self, call: calls.CollLine | None, message: NcclLine, line: Line) -> None:
        pointer = call.pointer if call else calls.torn_pointer(message.message)
        process = self._processes.of(message, line)
        if process is None:
            # A head that was cut off: whoever owns the pointer has lost a call.
            for owner in self._processes:
                if pointer in owner.live:
                    self._tear(owner, pointer, line)
            return
        if call is None or message.truncated or joined_to_a_cut_head(message, process):
            self._tear(process, pointer, line)
            return
        if call.pointer not in process.live:
            if not self._room(line):
                return
            self._made += 1
        process.device = message.dev
        process.record(call, line.number, int(line.time * _NS) if line.time else 0, self._processes.keep)

    def _tear(self, process: Process, pointer: str | None, line: Line) -> None:
        process.tear(pointer)
        self._torn += 1
        if self._torn == 1:
            self._note(
                "torn_line",
                "an NCCL call line is torn or collapsed; the calls after it cannot be numbered for certain",
                line,
                "write NCCL logs with NCCL_DEBUG_FILE, one file per process",
            )

    def _info(self, message: NcclLine, line: Line, process: Process) -> Iterator[Event]:
        text = message.message
        life = init.parse_life(text)
        if life is not None:
            if life.comm_rank >= life.nranks:
                what = f"a line says that it is of rank {life.comm_rank} of {life.nranks}"
                self._note("contradiction", what, line, "copy the log again from where the job wrote it")
            elif life.comm in process.live or self._room(line):
                yield from self._life(life, line, process)
            return
        if (address := init.bootstrap_address(text)) is not None:
            if process.ip is None:
                yield event_of(line, process, init.NcclInit, {"phase": "process"})
            process.ip = address
        elif (version := banner_version(text)) is not None:
            process.version = self._version = version
        elif (network := init.network_name(text)) is not None:
            process.network = network
        elif (rank := init.rank_without_color(text)) is not None:
            count_split_without_color(process, rank)
        elif (dead := _RAS_DEAD.match(text)) is not None:
            yield event_of(line, process, NcclRas, {"what": "dead", "peer_host": dead["peer"]})
        elif init.is_bootstrap_done(text):
            waiting = [c for c in process.communicators if c.phase == "start"]
            if waiting:
                yield passed_bootstrap(line, process, waiting[-1])
        elif (pointer := init.layout_pointer(text)) is not None:
            track = process.live.get(pointer)
            if track is not None and track.comm.phase == "start":
                yield passed_bootstrap(line, process, track.comm)

    def _life(self, life: init.LifeLine, line: Line, process: Process) -> Iterator[Event]:
        track = process.live.get(life.comm)
        if (
            track is None
            or life.phase == "start"
            or (life.phase == "complete" and track.comm.phase not in ("start", "bootstrap"))
        ):
            track = process.create(life.comm, line.number)
            self._made += 1
            describe(track.comm, life, process)
            # a log that begins with a communicator's end does not hold its beginning
            track.comm.completed = life.phase in ("abort", "destroy")
        comm = track.comm
        comm.phase, comm.last_line = life.phase, line.number
        comm.completed = comm.completed or life.phase == "complete"
        comm.comm_id = comm.comm_id or life.comm_id
        yield step_of(line, process, comm)
        if life.phase == "start" and init.starts_after_bootstrap(life, process.version or self._version):
            yield passed_bootstrap(line, process, comm)
        if life.ends:
            del process.live[life.comm]
            comm.intact = comm.intact and not track.suspect

    def _room(self, line: Line) -> bool:
        if self._made >= MAX_COMMUNICATORS:
            self._note(
                "too_many_communicators",
                f"more than {MAX_COMMUNICATORS:,} communicators; the rest is not read",
                line,
            )
            return False
        return True

    def _note(self, code: str, message: str, line: Line, hint: str = "") -> None:
        if len(self.notes) < _MAX_NOTES and all(note.code != code for note in self.notes):
            self.notes.append(Note(code, message, line.file, line.number, hint))

    def _closing_notes(self) -> None:
        recorders = [p for p in self._processes if len(p.recording)]
        if not recorders:
            return
        file = recorders[0].file
        if any(p.late for p in recorders):
            self.notes.append(
                Note(
                    "late_start",
                    "the log begins after communicators were made; their calls are numbered from its start",
                    file,
                )
            )
        if any(p.pid is None for p in recorders):
            self.notes.append(
                Note("anonymised", "lines without host and pid; they are told apart by device only", file)
            )
        if len(recorders) > 1:
            self.notes.append(
                Note(
                    "shared_output",
                    f"{len(recorders)} processes share this output, which NCCL 2.13+ does not flush: up to "
                    "4,096 bytes may be missing at the end of each",
                    file,
                    hint="write NCCL logs with NCCL_DEBUG_FILE, one file per process",
                )
            )
