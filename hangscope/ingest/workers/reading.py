"""Files of text: a log, a stack dump, an answer of NCCL's RAS, or a log that holds the other two as well.

What a process prints last is in one file: the watchdog's lines, what it said when it was aborted, and the stacks that
faulthandler dumped. So a file that looks like stacks or like RAS is read as a log too, and the answers are put together.
`Reading` is what any file said, on the side that assembles the incident.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import BinaryIO

from hangscope.errors import Note
from hangscope.ingest.excerpts.around import completed, placed, repeated
from hangscope.ingest.excerpts.excerpt import MOST, Excerpt, excerpt
from hangscope.ingest.files.naming import attempt_of, rank_of_log
from hangscope.ingest.files.run_evidence import is_of_the_watcher
from hangscope.ingest.job_logs import (
    activity,
    end_reports,
    endings,
    faults,
    library_reports,
    messages,
    progress,
    starts,
)
from hangscope.ingest.job_logs.durations import durations, long_works
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.last_lines import last_lines
from hangscope.ingest.lines.blocks import parsers_of
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import cut
from hangscope.ingest.lines.rank_words import states_itself
from hangscope.ingest.lines.scan import scan
from hangscope.ingest.nccl import warn
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.log import NcclParser
from hangscope.ingest.nccl.ras_json import read_inspector_lines, read_json
from hangscope.ingest.nccl.ras_text import read_text
from hangscope.ingest.recorder.members import Interner
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.stacks.dumps import LateStackParser, ProcessStacks, processes_in, read_processes
from hangscope.ingest.torch_logs import analyzer, c10d, reports, wrapper
from hangscope.ingest.torch_logs.detail import DetailParser
from hangscope.ingest.torch_logs.store import StoreParser
from hangscope.ingest.torch_logs.traceback import RankException, TracebackParser
from hangscope.ingest.workers.answer import Wire, answer
from hangscope.model.codec import ShapeError, from_row, to_fields, to_row
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_SHOWN, _WIDTH = 8, 200  # lines of a log's end, and characters of each, that a report shows
#: what only a job of this kind prints: text that contains it is of one, if of nothing that went wrong
_OF_A_JOB = regex(
    rb"NCCL (?:INFO|WARN) |\[rank\d{1,7}\]:|ProcessGroup[A-Z]\w{2,10}|process_group_\w{2,20}\.cpp|torch[./]distributed|TCPStore"
    rb"|\b(?:(?:TORCH_)?NCCL|TORCH_(?:FR|DISTRIBUTED))_[A-Z]|\b[Hh]orovod|[a-z]: opCount \d|distributed init \(rank|shm_broadcast|\b(?:world_size|nranks)\b"
    rb"|Communicators\.\.\. \(\d|\bComms +Nodes +Ranks\b"
)
#: without which none of these is in a text
_SIGNS = (
    b"NCCL", b"[rank", b"ProcessGroup", b"process_group_", b"torch.distributed", b"torch/distributed", b"TCPStore", b"TORCH_",
    b"orovod", b"opCount", b"distributed init", b"shm_broadcast", b"world_size", b"nranks", b"Communicators...", b"Comms ",
)  # fmt: skip
#: what any text may seem to hold, whether it is of a job or not
_OF_ANY_TEXT = ("progress", "printed", "loop_length")


@dataclass(slots=True)
class LogReading:
    """What one log says.

    `rank`, `local_rank` and `attempt` are those of the path; events have what their own line states (evidence/processes.py). `lines` counts what
    was read. `tail` are the last lines of a rank's own log, the oldest first. `of_a_job`: its end holds what only a distributed job
    prints. `excerpt`: a short text as a whole. `stated`: the rank and the world size that the process says of itself, where the path
    holds no rank. `nccl` are the recordings of the `communicators`' processes.
    """

    file: str
    events: list[Event] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lines: int = 0
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    tail: tuple[str, ...] = ()
    of_a_job: bool = False
    excerpt: Event | None = None
    stated: tuple[int, int] | None = None
    stacks: list[ProcessStacks] = field(default_factory=list)
    nccl: list[Recording] = field(default_factory=list)
    communicators: list[Communicator] = field(default_factory=list)

    @property
    def shows_a_job(self) -> bool:
        """Return whether it says more of a job than how far its loop came, which any text may seem to say."""
        found = self.stacks or self.recordings or self.nccl or self.communicators
        return bool(found) or any(event.kind not in _OF_ANY_TEXT for event in self.events)


_READ_AS_A_WHOLE = 64  # ranks whose own logs are: what a whole shows, those of a large job show alike


def read_log(stream: BinaryIO, file: str) -> LogReading:
    """Return what a log says. Reads the stream once, in memory that does not grow with it; never raises for what it holds.

    `file` is the name that events show, from which rank and attempt are read.
    """
    detail, nccl, late = DetailParser(file), NcclParser(), LateStackParser()
    forms = parsers_of(
        c10d, wrapper, endings, faults, starts, analyzer, reports, end_reports, library_reports, progress, activity, warn,
    )  # fmt: skip
    others = (messages.MessageParser(), TracebackParser(), StoreParser(), faults.LinkParser())
    found = scan(stream, file, [*forms, *others, detail, nccl, late])
    rank, local_rank = rank_of_log(file)
    own = (rank, local_rank) != (None, None)
    kept, recordings = KeptText(found.windows, file, own), detail.recordings(owned=own)
    is_excerpt = found.size <= MOST and not own
    said = completed(found.events)
    said = [*placed(said, kept)] if is_excerpt else said
    copied = repeated(said, kept) if is_excerpt else []
    events = [*said, *last_lines(kept), *durations(kept), *long_works(kept), *copied]
    signs = (data for _, data in found.windows if any(sign in data for sign in _SIGNS))
    return LogReading(
        file,
        _of_spawned(sorted(events, key=lambda event: event.line)),
        recordings,
        [*nccl.notes, *found.notes, *(note for recording in recordings for note in recording.notes)],
        found.lines,
        rank,
        local_rank,
        attempt_of(file),
        tail=tuple(cut(text, _WIDTH) for _, text in kept.texts[-_SHOWN:]) if own else (),
        of_a_job=any(map(_OF_A_JOB.search, signs)),
        excerpt=None
        if is_of_the_watcher(file) or (rank or 0) >= _READ_AS_A_WHOLE
        else excerpt(kept, found.size),
        stated=None if own else states_itself(text for _, text in kept.texts),
        stacks=max(_titled(kept) if is_excerpt else [], late.processes(), key=len),
        nccl=nccl.recordings(),
        communicators=nccl.communicators(),
    )


def _titled(kept: KeptText) -> list[ProcessStacks]:
    """Return the stacks in a short text whose only headers are lines that name a rank or a process."""
    found = processes_in(map(kept.line, range(len(kept.raw))) if kept.complete else ())
    return [process for process in found if process.threads and (process.rank is not None or process.pid)]


def _of_spawned(events: list[Event]) -> list[Event]:
    """Return the events with the traceback that the parent of `mp.spawn` prints of a process as that process's."""
    for place, (before, event) in enumerate(pairwise(events), 1):
        spawned = isinstance(before, Exit) and before.via == "spawn" and before.local_rank is not None
        if spawned and isinstance(event, RankException) and event.rank is None and event.local_rank is None:
            events[place] = replace(event, local_rank=before.local_rank)
    return events


def read_logs(stream: BinaryIO, shown: str) -> Wire:
    """Return the answer that a log is."""
    return of_log(read_log(stream, shown))


def of_log(log: LogReading) -> Wire:
    """Return the answer that a log is."""
    return {**_with_stacks(answer("log"), log), "log": to_fields(log)}


def _with_stacks(found: Wire, log: LogReading) -> Wire:
    """Return the answer with the stacks of a log, which are left to it."""
    stacks, log.stacks = log.stacks, []
    return {**found, "stacks": to_row(stacks)}


def read_stacks(stream: BinaryIO, shown: str) -> Wire:
    """Return the threads of a stack dump, and what else its process printed."""
    stacks = read_processes(stream, shown)
    stream.seek(0)
    log = read_log(stream, shown)
    log.stacks = [process for process in stacks if process.threads] or log.stacks
    return _with_log(answer("stacks"), log)


def read_ras(stream: BinaryIO, shown: str) -> Wire:
    """Return the snapshots that NCCL RAS printed, and the other text that was printed with them."""
    text = stream.read().decode("utf-8", "replace")
    events, notes = read_json(text, shown) if text.lstrip()[:1] == "{" else read_text(text, shown)
    stream.seek(0)
    return _with_log(_with_events("ras", events, notes), read_log(stream, shown))


def read_inspector(stream: BinaryIO, shown: str) -> Wire:
    """Return what NCCL's Inspector wrote about completed collectives."""
    return _with_events("inspector", *read_inspector_lines(stream, shown))


def _with_events(kind: str, events: Sequence[Event], notes: list[Note]) -> Wire:
    return {**answer(kind), "events": to_row(list(events)), "notes": to_row(notes)}


def _with_log(found: Wire, log: LogReading) -> Wire:
    """Return the answer with what the same file says as a log; the log's alone where there is nothing else."""
    if not log.stacks and not found["events"]:
        is_log = log.shows_a_job or found["kind"] == "stacks" or log.of_a_job
        return of_log(log) if is_log else found
    # gdb's Python frames look like those of a traceback without an end
    log.events = [event for event in log.events if not getattr(event, "truncated", False)]
    found = _with_stacks(found, log)
    whole = log.excerpt if isinstance(log.excerpt, Excerpt) else None
    counts = whole is not None and (
        any((whole.prose, whole.sides, whole.went_on, whole.slow, whole.code))
        or any(before.line == one.line for before, one in pairwise(whole.named))
    )
    of_ranks = len({event.rank for event in log.events if event.rank is not None}) > 1
    return {**found, "log": to_fields(log)} if log.shows_a_job or counts or of_ranks else found


@dataclass(slots=True)
class Reading:
    """The parsed content of one file. `file` is the name that reports show."""

    file: str
    kind: str
    status: str
    reason: str
    recordings: list[Recording] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    stacks: list[ProcessStacks] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    # of one that is read as no log: without lines
    log: LogReading = field(default_factory=lambda: LogReading(""))
    written: float | None = None  # when the file was (s since the epoch), as far as that is known

    @property
    def all_events(self) -> list[Event]:
        """Return all that its lines say."""
        return [*self.events, *self.log.events]

    @classmethod
    def from_wire(cls, file: str, wire: Wire, interner: Interner | None = None) -> Reading:
        """Return the reading of `file` from what `reader.read_file` answered."""
        log = from_row(LogReading, wire["log"]) if wire["log"] else LogReading(file)
        notes = [replace(note, file=file) for note in from_row(list[Note], wire["notes"])]
        return cls(
            file=file,
            kind=wire["kind"],
            status=wire["status"],
            reason=wire["reason"],
            recordings=[Recording.from_wire(r, interner) for r in wire["recordings"]],
            events=from_row(list[Event], wire["events"]),
            stacks=from_row(list[ProcessStacks], wire["stacks"]),
            notes=notes + log.notes,
            log=log,
        )


def readings_of(file: str, wire: Wire, interner: Interner, written: float | None = None) -> list[Reading]:
    """Return the reading of a file and, where it is a pack, of every file that is packed in it."""
    inner = wire.get("files", ())
    try:
        first = Reading.from_wire(file, wire, interner)
    except ShapeError as error:
        return [Reading(file, "unread", "failed", f"what was read of it is of no use: {error}")]
    first.written = written
    return [first, *(Reading.from_wire(name, answer, interner) for name, _, answer in inner)]
