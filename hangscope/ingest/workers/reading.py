"""What one file said, on the side that assembles the incident."""

from __future__ import annotations

from dataclasses import field, replace

from hangscope.errors import Note
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.recorder.members import Interner
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.stacks.dumps import ProcessStacks
from hangscope.ingest.workers.answer import Wire
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.model.codec import ShapeError, from_row
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event


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
    log: LogReading | None = None
    written: float | None = None  # when the file was last written (s since the epoch), as far as that is told

    @property
    def all_events(self) -> list[Event]:
        """Return all that its lines say."""
        return [*self.events, *(self.log.events if self.log is not None else ())]

    @property
    def communicators(self) -> list[Communicator]:
        """Return NCCL's communicators, as its log states them."""
        return self.log.communicators if self.log is not None else []

    @property
    def nccl_recordings(self) -> list[Recording]:
        """Return the calls of each of NCCL's processes."""
        return self.log.nccl if self.log is not None else []

    @classmethod
    def from_wire(cls, file: str, wire: Wire, interner: Interner | None = None) -> Reading:
        """Return the reading of `file` from what `reader.read_file` answered."""
        log = from_row(LogReading, wire["log"]) if wire["log"] else None
        notes = [replace(note, file=file) for note in from_row(list[Note], wire["notes"])]
        return cls(
            file=file,
            kind=wire["kind"],
            status=wire["status"],
            reason=wire["reason"],
            recordings=[Recording.from_wire(r, interner) for r in wire["recordings"]],
            events=from_row(list[Event], wire["events"]),
            stacks=from_row(list[ProcessStacks], wire["stacks"]),
            notes=notes + (log.notes if log else []),
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
