"""What an earlier attempt said in files that tell of no restart themselves.

Logs of requeued jobs go on in the same files. Some show the restart (an agent that ends its workers twice, a rank that
speaks on after its watchdog ended its process), others do not: a rank that had nothing overdue just stops and begins.
Other runs left files of their own, whose names tell of which day they are.
"""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Sequence

from hangscope.errors import Note
from hangscope.events import Event, in_leap_year
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.workers.reading import Reading
from hangscope.regex import regex

_DAY = 86400.0
_DATE = regex(r"(?<!\d)(20\d\d)([-_.]?)(0[1-9]|1[0-2])\2([0-2]\d|3[01])(?!\d)")


def without_older_days(readings: Sequence[Reading], notes: list[Note]) -> list[Reading]:
    """Return the readings without the logs of an earlier day's run, by the dates in the names of files and folders.

    So are those whose date lies before that of the newest, and before the day on which all began to wait that the newest
    show in a wait, and that tell of nothing from that day on. Files of one run that tell the time are never taken for two.
    """
    days = {r.file: day for r in readings if r.log is not None and (day := _day(r.file)) is not None}
    newest = max(days.values(), default=datetime.date.min)
    begun = [
        event.stamp - event.ran_ms / 1000
        for reading in readings
        if days.get(reading.file) == newest
        for event in reading.all_events
        if isinstance(event, WatchdogTimeout) and event.stamp is not None and event.ran_ms is not None
    ]
    ends = {file: _end_of(day) for file, day in days.items() if day < newest}
    over = {
        r.file
        for r in readings
        if begun
        and r.file in ends
        and ends[r.file] <= min(begun)
        and all((e.in_the_year or 0.0) < ends[r.file] for e in r.all_events)
    }
    notes += [
        Note(
            "stale",
            "by its name the log is of an earlier day than the job that waits, so it was set aside",
            f,
        )
        for f in sorted(over)
    ]
    return [r for r in readings if r.file not in over]


def _day(path: str) -> datetime.date | None:
    """Return the last date of a path."""
    dates = _DATE.findall(path)
    try:
        return datetime.date(*map(int, (dates[-1][0], *dates[-1][2:]))) if dates else None
    except ValueError:
        return None


def _end_of(day: datetime.date) -> float:
    """Return when a day ends, in seconds since 1 January of a leap year."""
    return (in_leap_year(day.month, day.day) or 0.0) + _DAY


def without_earlier(events: Sequence[Event], over: float) -> list[Event]:
    """Return the events without those that are older than `over`, when the attempt before ended (as stamps are printed).

    A file that shows no restart itself is cut behind its last stamp up to then. Where a rank's own file has later stamps
    only, what stands before the first of them without a stamp is of the earlier attempt too: a process that ended by
    what it says there would not have spoken on. The clocks of hosts are taken to agree within the gap between attempts.
    """
    files: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        files[event.file].append(event)
    return [event for told in files.values() for event in _later(sorted(told, key=lambda e: e.line), over)]


def drop_copies(launchers: Sequence[Reading], others: Sequence[Reading], own: Sequence[Reading]) -> None:
    """Remove from launchers' logs what they copied from ranks of `others`, earlier attempts, but not from ranks of `own`."""
    copied = {(e.kind, e.text) for r in others for e in r.all_events}
    copied -= {(e.kind, e.text) for r in own for e in r.all_events}
    for reading in launchers:
        for events in (reading.events, *([reading.log.events] if reading.log is not None else [])):
            events[:] = [e for e in events if (e.kind, e.text) not in copied]


def without_failures_of(earlier: Sequence[Event], events: Sequence[Event]) -> list[Event]:
    """Return the events without what a rank's log does not date and what ended it in an earlier attempt.

    So it is where the launcher saw the rank fail by itself (a positive exit code) in `earlier`, and in the attempt that is
    analysed saw it end by a signal.
    """
    failed = {e.rank for e in earlier if isinstance(e, Exit) and (e.code or 0) > 0}
    signalled = {e.rank for e in events if isinstance(e, Exit) and (e.code or 0) < 0}
    signalled -= {e.rank for e in events if isinstance(e, Exit) and (e.code or 0) > 0}
    over = failed & signalled - {None}
    return [
        e
        for e in events
        if e.rank not in over
        or e.attempt is not None
        or e.stamp is not None
        or e.time is not None
        or e.by_launcher
        or e.calm
    ]


def _later(events: list[Event], over: float) -> list[Event]:
    if any(event.attempt is not None for event in events):
        return events
    stamped = [index for index, event in enumerate(events) if event.stamp is not None]
    earlier = [index for index in stamped if (events[index].stamp or 0.0) <= over]
    if earlier:
        return events[earlier[-1] + 1 :]
    one_rank = len({event.rank for event in events}) == 1 and not any(e.by_launcher for e in events)
    return events[stamped[0] :] if stamped and one_rank else events
