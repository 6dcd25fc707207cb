"""What an earlier attempt said in files that tell of no restart themselves.

Logs of requeued jobs go on in the same files. Some show the restart (an agent that ends its workers twice, a rank that
speaks on after its watchdog ended its process), others do not: a rank that had nothing overdue just stops and begins.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.events import Event
from hangscope.ingest.job_logs.endings import Exit


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
