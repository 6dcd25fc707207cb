"""The lines that the page quotes: watchdogs, ends of processes, tracebacks, who joined. Only this module reads statements here."""

from __future__ import annotations

from hangscope.ingest.job_logs.activity import Held
from hangscope.ingest.job_logs.endings import Exit, ExitOk, ExternalEnd
from hangscope.ingest.job_logs.faults import CudaError, DiskFull, LoaderWorkerDeath, OomCuda, OomHost, Xid
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.job_logs.progress import Progress, WorkersEnded
from hangscope.ingest.nccl.comm import UnmadeCommunicator
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs import store
from hangscope.ingest.torch_logs.c10d import DumpObserved, DumpSignal, HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooTimeout, MonitoredBarrier
from hangscope.knowledge.callsite import is_user
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event, since_new_year
from hangscope.model.frames import Stack
from hangscope.model.regex import regex
from hangscope.report.schema.page import PageFrame
from hangscope.report.subject import Subject

_FAULTS = (OomCuda, OomHost, CudaError, Xid, DiskFull, LoaderWorkerDeath)
_ENDS = (*_FAULTS, Terminate, Exit, ExternalEnd)
_ZONED = regex(
    r"^.{0,100}?\b\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?: ?(?:Z|UTC|GMT)\b|[+-]\d\d:?\d\d\b)|\dT\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)"
)
_LAST = 6  # lines
_ZONE, _NEAR = 1800, 120  # seconds: what time zones differ by, and what a watchdog may be late
#: Who noticed the stall; who begins to write its dump; who ends the job from outside; which group or rendezvous some ranks
#: did not join; what NCCL warns of.
KINDS: dict[str, tuple[type[Event], ...]] = {
    "watchdog": (WatchdogTimeout, HeartbeatTimeout, GlooTimeout, MonitoredBarrier, store.StoreTimeout),
    "dump": (DumpSignal, DumpObserved),
    "termination": (ExternalEnd,),
    "join": (
        *(store.StoreTimeout, store.StoreBarrier, store.StoreUnreachable, store.RendezvousTimeout),
        *(store.PortInUse, UnmadeCommunicator),
    ),
    "transport": (NcclWarn,),
}


@dataclass(frozen=True, slots=True)
class Quote:
    """One statement as the page quotes it. `time` is seconds since the epoch, `stamp` since a new year that is not known.

    `local`: the line states no time zone, so that `time` may be hours off.
    """

    rank: int | None
    text: str
    source: str
    time: float | None
    stamp: float | None = None
    local: bool = False

    def at(self, new_year: float | None) -> float:
        """Return its time, or that of its stamp in the year that began then; 0 where neither is known."""
        if self.time or new_year is None or self.stamp is None:
            return self.time or 0.0
        return new_year + self.stamp


def of_kind(subject: Subject, kind: str) -> list[Quote]:
    """Return the lines of one of `KINDS`."""
    statements = subject.analysis.case.statements
    return [_quote(event) for one in KINDS[kind] for event in statements.all(one)]


def new_year(subject: Subject, stalled: float) -> float | None:
    """Return what makes a `stamp` seconds since the epoch, None where no log line can be placed on the dumps' clock.

    A timeout's line says how long its collective ran: from `stalled` (seconds since the epoch) on, to within two minutes and a
    time zone.
    """
    for event in subject.analysis.case.statements.all(WatchdogTimeout):
        if event.ran_ms is not None and event.stamp is not None:
            expected = stalled + event.ran_ms / 1000
            year = expected - since_new_year(expected)
            apart = expected - (year + event.stamp)
            zone = round(apart / _ZONE) * _ZONE
            if abs(apart - zone) <= _NEAR:
                return year + zone
    return None


def ends(subject: Subject, rank: int | None = None) -> list[Quote]:
    """Return what lines report of the ends of processes, of one rank or of all, without those that only follow another's end."""
    statements = subject.analysis.case.statements
    kinds = (RankException, *_ENDS)
    found = (
        e for kind in kinds for e in (statements.all(kind) if rank is None else statements.of(rank, kind))
    )
    return [_quote(e) for e in found if not (isinstance(e, RankException) and e.symptom)]


def last_words(subject: Subject, rank: int) -> list[Quote]:
    """Return the last lines of one rank's log that state an event."""
    events = subject.incident.ranks[rank].events
    # The program's own lines are compared with their numbers masked, so quoting them here would only repeat the tail of the log.
    return [_quote(e) for e in events if e.text and not isinstance(e, Printed)][-_LAST:]


def last_line(subject: Subject, rank: int) -> Quote | None:
    """Return the last line that a rank itself printed, of several files in that with an error, or with the latest time; None where none is known."""
    record = subject.incident.ranks[rank]
    tails = {file: lines[-1] for file, lines in record.log_tails if lines}
    of_file: dict[str, list[Event]] = {file: [] for file in tails}
    for event in record.events:
        if event.text and not event.by_launcher and not (isinstance(event, Held) and event.by != "debugger"):
            of_file.setdefault(event.file, []).append(event)
    if not of_file:
        return None
    file, events = max(of_file.items(), key=lambda item: _weight(item[1]))
    said = [(e.numbers[-1], e.texts[-1]) if isinstance(e, Printed) else (e.line, e.text) for e in events]
    number, text = max(said, default=(0, ""))
    if file in tails and text.strip() not in tails[file]:
        number, text = 0, tails[file]
    return Quote(rank, text or tails[file], f"{file}:{number}" if number else file, None)


def _weight(events: list[Event]) -> tuple[bool, float]:
    """Return whether lines of one file say more than how far the program came, and when the last of them was printed."""
    errors = any(not e.calm and not isinstance(e, Progress) for e in events)
    return errors, max((e.in_the_year or 0.0 for e in events), default=0.0)


def has_ended(subject: Subject) -> bool:
    """Return whether lines report that a process of the job has ended."""
    statements = subject.analysis.case.statements
    return bool(statements.all(Exit, ExitOk, WorkersEnded, ExternalEnd))


def traceback_of(subject: Subject, rank: int) -> tuple[PageFrame, ...]:
    """Return the frames of a rank's own traceback, innermost first, with the source line where the log quotes it."""
    statements = subject.analysis.case.statements
    raised = [e for e in statements.of(rank, RankException) if not e.symptom and e.frames]
    ended = [(e.frames, "") for e in statements.of(rank, Terminate) if e.frames]
    frames, code = next(iter([(e.frames, e.code or "") for e in raised] + ended), ((), ""))
    shown = []
    for frame in frames:  # the code is that of the innermost frame of the user
        is_users = is_user(frame)
        shown.append(PageFrame(frame.name, frame.file, frame.line, is_users, code=code if is_users else ""))
        code = "" if is_users else code
    return tuple(shown)


def places(subject: Subject) -> list[tuple[int | None, str, Stack]]:
    """Return where processes were, by their stacks and tracebacks: a rank (None if unknown), which of the two, and its frames."""
    statements = subject.analysis.case.statements
    known = {rank: where for rank, where in sorted(statements.whereabouts.items()) if where.stack}
    found: list[tuple[int | None, str, Stack]] = []
    for rank, where in known.items():
        found.append((rank, "stack" if where.kind == "stack" else "traceback", where.stack))
    found += [(None, "stack", own.stack) for own in subject.incident.unplaced if own.stack]
    raised = [error for error in statements.all(RankException) if error.frames and error.rank not in known]
    return found + [(error.rank, "traceback", error.frames) for error in raised]


def _quote(event: Event) -> Quote:
    source = f"{event.file}:{event.line}" if event.line else event.file
    local = event.time is not None and not _ZONED.search(event.text)
    return Quote(event.rank, event.text, source, event.time, event.stamp, local)
