"""What text says that the page shows: watchdogs, ends of processes, tracebacks, who joined. The one reader of statements here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hangscope.align.callsite import is_user
from hangscope.incident import Event
from hangscope.report.page_data import PageFrame
from hangscope.report.subject import Subject

_WATCHDOGS = ("watchdog_timeout", "heartbeat_timeout", "gloo_timeout", "monitored_barrier", "store_timeout")
_ENDS = ("exit", "external_end", "exception", "terminate", "oom_cuda", "oom_host", "cuda_error", "xid", "disk_full")
_JOINS = ("store_timeout", "store_barrier", "store_unreachable", "rendezvous_timeout", "port_in_use", "nccl_init")


@dataclass(frozen=True, slots=True)
class Told:
    """One statement as the page quotes it. `time` is seconds since the epoch."""

    rank: int | None
    text: str
    source: str
    time: float | None


def watchdogs(subject: Subject) -> list[Told]:
    """Return who noticed the stall: timeouts of watchdogs, gloo, monitored barriers and stores."""
    return [_told(e) for e in subject.analysis.case.facts.all(*_WATCHDOGS)]


def ends(subject: Subject) -> list[Told]:
    """Return what text tells of the ends of processes, those that only pass on another's end left out."""
    return [_told(e) for e in subject.analysis.case.facts.all(*_ENDS) if not e.fields.get("symptom")]


def ends_of(subject: Subject, rank: int) -> list[Told]:
    """Return what text tells of the end of one rank's process."""
    return [_told(e) for e in subject.analysis.case.facts.of(rank, *_ENDS)]


def joins(subject: Subject) -> list[Told]:
    """Return what text tells of a group or rendezvous that did not become whole."""
    return [_told(e) for e in subject.analysis.case.facts.all(*_JOINS)]


def last_words(subject: Subject, rank: int, most: int = 6) -> list[Told]:
    """Return the last telling lines of one rank's log."""
    record = subject.incident.ranks.get(rank)
    return [_told(e) for e in (record.events[-most:] if record is not None else ())]


def has_ended(subject: Subject) -> bool:
    """Return whether text tells that a process of the job has ended."""
    return bool(subject.analysis.case.facts.all("exit", "exit_ok", "external_end"))


def traceback_of(subject: Subject, rank: int) -> tuple[PageFrame, ...]:
    """Return the frames of a rank's own traceback, innermost first, with the source line where the log quotes it."""
    for event in subject.analysis.case.facts.of(rank, "exception", "terminate"):
        frames = event.fields.get("frames") or ()
        if frames and not event.fields.get("symptom"):
            return _frames(frames, str(event.fields.get("code") or ""))
    return ()


def _frames(frames: Any, code: str) -> tuple[PageFrame, ...]:
    from hangscope.incident import Frame

    result: list[PageFrame] = []
    quoted = False
    for name, file, line in frames:
        user = is_user(Frame(name, file, line))
        result.append(PageFrame(name, file, int(line), user, code=code if user and not quoted else ""))
        quoted = quoted or user
    return tuple(result)


def _told(event: Event) -> Told:
    source = f"{event.file}:{event.line}" if event.line else event.file
    return Told(event.rank, event.text, source, event.time)
