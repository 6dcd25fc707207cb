"""Which restart attempt lines belong to, and what an earlier attempt said in files that tell of no restart themselves.

Logs of requeued jobs go on in the same files. Some show the restart (an agent that ends its workers twice, a rank that
speaks on after its watchdog ended its process), others do not: a rank that had nothing overdue just stops and begins.
Other runs left files of their own, whose names tell of which day they are.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.torch_logs.c10d import ProcessDown
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event

AFTERMATH = 30.0  # seconds that a process may go on talking after its watchdog has ended it


def with_attempts(events: list[Event], attempt: int | None) -> list[Event]:
    """Return the events with their attempt: the path's, or counted by the restarts that the log shows.

    An agent prints `failed (exitcode …` once per attempt, after its workers' last output; so an agent that
    prints it again is one attempt further, and what stands between belongs to the later one. Behind the last
    such line only a line of a rank, or a table behind its word that it restarts them, shows that one more attempt
    began; what stands before that word is of the attempt that failed. Without an agent, a rank that speaks again after its watchdog ended its process is one attempt further, and so
    is a task of srun that ends again.
    """
    if attempt is not None:
        return [replace(event, attempt=attempt) for event in events]
    ends: list[int] = []  # index of the last line of each attempt that is known to be over
    spoken: set[Any] = set()
    last = -1
    restarted = begun = False  # `begun`: a table tells of the attempt that began then
    for index, event in enumerate(events):
        agent = _ends_attempt(event)
        if agent is None:
            if isinstance(event, CleanupSignal) and event.signal == "restart":
                restarted, last = True, index
            if last >= 0 and isinstance(event, Exit) and event.via == "table":
                begun |= restarted
                last = last if restarted else index  # an agent's table closes what it told before
            continue
        if agent in spoken:
            ends.append(last)
            spoken = set()
        spoken.add(agent)
        last = index
        restarted = begun = False
    if last >= 0 and (begun or any(_of_a_rank(event) for event in events[last + 1 :])):
        ends.append(last)
    ends = ends or _ends_of_processes(events)
    if not ends:
        return events
    return [replace(event, attempt=bisect_left(ends, index)) for index, event in enumerate(events)]


def _ends_of_processes(events: list[Event]) -> list[int]:
    """Return the index of the last line of each attempt that a rank's watchdog ended, where that rank speaks well after it."""
    ends: list[int] = []
    down: dict[int | None, float] = {}
    last = -1
    for index, event in enumerate(events):
        if not isinstance(event, GroupEvent) or event.stamp is None:
            continue
        if isinstance(event, ProcessDown):
            down[event.rank], last = event.stamp, index
        elif event.stamp > down.get(event.rank, event.stamp) + AFTERMATH:
            ends.append(last)
            down.clear()
    return ends


def _ends_attempt(event: Event) -> Any:
    """Return who says here that an attempt is over: an agent, or None."""
    if isinstance(event, Exit) and event.via == "agent":
        return (event.host, event.agent or event.task)
    return None


def _of_a_rank(event: Event) -> bool:
    """Return whether a rank printed this, not a launcher."""
    if event.by_launcher:
        return False
    return event.rank is not None or event.local_rank is not None


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


def _later(events: list[Event], over: float) -> list[Event]:
    if any(event.attempt is not None for event in events):
        return events
    stamped = [index for index, event in enumerate(events) if event.stamp is not None]
    earlier = [index for index in stamped if (events[index].stamp or 0.0) <= over]
    if earlier:
        return events[earlier[-1] + 1 :]
    one_rank = len({event.rank for event in events}) == 1 and not any(e.by_launcher for e in events)
    return events[stamped[0] :] if stamped and one_rank else events
