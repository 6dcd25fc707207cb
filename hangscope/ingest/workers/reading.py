"""What one file said, on the side that assembles the incident."""

from __future__ import annotations

from dataclasses import field, replace

from hangscope.errors import Note
from hangscope.ingest.nccl import warn  # noqa: F401 - its kinds of events come back from children
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.ras import snapshot  # noqa: F401
from hangscope.ingest.recorder.members import Interner
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.workers.answer import Wire
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.model.codec import ShapeError, from_row
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Stack


@dataclass(slots=True)
class Thread:
    """One thread of a stack dump; frames innermost first. `process` counts those of the file; the rest is told of it, as far as it is."""

    name: str
    stack: Stack
    is_main: bool
    rank: int | None = None
    pid: int | None = None
    local_rank: int | None = None
    task: int | None = None
    process: int = 0


@dataclass(slots=True)
class Reading:
    """The parsed content of one file. `file` is the name that reports show."""

    file: str
    kind: str
    status: str
    reason: str
    recordings: list[Recording] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    log: LogReading | None = None
    nccl_recordings: list[Recording] = field(default_factory=list)
    communicators: list[Communicator] = field(default_factory=list)
    written: float | None = None  # when the file was last written (s since the epoch), as far as that is told

    @property
    def all_events(self) -> list[Event]:
        """Return all that its lines say."""
        return [*self.events, *(self.log.events if self.log is not None else ())]

    @classmethod
    def from_wire(cls, file: str, wire: Wire, interner: Interner | None = None) -> Reading:
        """Return the reading of `file` from what `reader.read_file` answered."""
        nccl = wire["nccl"] or {"recordings": (), "communicators": ()}
        log = from_row(LogReading, wire["log"]) if wire["log"] else None
        notes = [replace(note, file=file) for note in from_row(list[Note], wire["notes"])]
        return cls(
            file=file,
            kind=wire["kind"],
            status=wire["status"],
            reason=wire["reason"],
            recordings=[Recording.from_wire(r, interner) for r in wire["recordings"]],
            events=from_row(list[Event], wire["events"]),
            threads=from_row(list[Thread], wire["threads"]),
            notes=notes + (log.notes if log else []),
            log=log,
            nccl_recordings=[Recording.from_wire(r, interner) for r in nccl["recordings"]],
            communicators=from_row(list[Communicator], nccl["communicators"]),
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
