"""Which restart attempt lines belong to, also in files that show no restart.

Logs of requeued jobs continue in the same files. Some show the restart (an agent that ends its workers twice, a rank that
prints lines after its watchdog ended its process), others do not: a rank that had nothing overdue just stops and begins.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.layers import seconds_of_day
from hangscope.ingest.torch_logs.c10d import GroupEvent, ProcessDown
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event
from hangscope.model.regex import regex

_CLOCK, _HEAD = regex(r"\b(\d\d):(\d\d):(\d\d)\b"), 120  # characters of a line that may hold its time
_DAY, _JOINED = 86_400, 600  # s; the ends of two nodes' logs are no further apart
AFTERMATH = 30.0  # seconds that a process may print lines after its watchdog has ended it


def attempt_to_read(of: Mapping[int, Sequence[Event]], recorded: Collection[int] = ()) -> int:
    """Return the last attempt, or the one before it where that failed by a fault of its own and the last one never came to a step.

    `recorded`: attempts whose collectives are known, so that they did. What a restart fails on may be left over from the first failure.
    """
    last, *before = sorted(of, reverse=True)
    for earlier in before:
        raised = any(isinstance(e, RankException) and not e.symptom for e in of[earlier])
        if last in recorded or any(isinstance(e, Progress) for e in of[last]) or not raised:
            break
        if not any(isinstance(e, Progress) for e in of[earlier]):
            break
        last = earlier
    return last


def with_attempts(events: list[Event], attempt: int | None) -> list[Event]:
    """Return the events with their attempt: the path's, or counted by the restarts that the log shows."""
    if attempt is not None:
        return [replace(event, attempt=attempt) for event in events]
    ends = _ends_by_agents(events) or _ends_by_watchdogs(events) or _ends_by_tasks(events)
    if not ends:
        return events
    return [replace(event, attempt=bisect_left(ends, index)) for index, event in enumerate(events)]


def _ends_by_agents(events: list[Event]) -> list[int]:
    """Return the index of the last line of each attempt that is known to be over by what agents print.

    An agent prints `failed (exitcode …` once per attempt, after its workers' last output; so an agent that prints it again is one
    attempt further, and what is between belongs to the later one. After the last such line only a line of a rank that printed before, or
    of any rank long after, or a table or line after the agent's line that it restarts its workers, shows that one more attempt began; what
    precedes that line is of the attempt that failed.
    """
    ends, seen, last = list[int](), set[Any](), -1
    restarted = begun = False  # `begun`: a table is of the attempt that began then
    for index, event in enumerate(events):
        if isinstance(event, Exit) and event.via == "agent":
            agent = (event.host, event.agent or event.task)
            if agent in seen:
                ends.append(last)
                seen = set()
            seen.add(agent)
            last, restarted, begun = index, False, False
        elif isinstance(event, CleanupSignal) and event.signal == "restart":
            last, restarted = index, True
        elif last >= 0 and isinstance(event, Exit) and event.via == "table":
            begun |= restarted
            last = last if restarted else index  # an agent's table closes what it printed before
    of_ranks = [e for e in events[last + 1 :] if not e.by_launcher and (e.rank, e.local_rank) != (None, None)]
    known = {rank for e in events[: last + 1] for rank in (e.rank, e.local_rank)} - {None}
    later = [
        e
        for e in of_ranks
        if _after(e, events[last]) >= (0 if restarted or known & {e.rank, e.local_rank} else _JOINED)
    ]
    return [*ends, last] if last >= 0 and (begun or later) else ends


def _after(event: Event, other: Event) -> float:
    """Return how many seconds a line came after one above it, 1 where one of them has no clock.

    It is negative where its clock is a little behind, as where the logs of two nodes were joined.
    """
    own, last = _CLOCK.search(event.text[:_HEAD]), _CLOCK.search(other.text[:_HEAD])
    if own is None or last is None:
        return 1.0
    seconds = (seconds_of_day(own) - seconds_of_day(last)) % _DAY
    return seconds if seconds < _DAY - _JOINED else seconds - _DAY


def _ends_by_watchdogs(events: list[Event]) -> list[int]:
    """Return the index of the last line of each attempt that a rank's watchdog ended, where that rank prints lines well after it."""
    ends, last = list[int](), -1
    down: dict[int | None, float] = {}
    for index, event in enumerate(events):
        if not isinstance(event, GroupEvent) or event.stamp is None:
            continue
        if isinstance(event, ProcessDown):
            down[event.rank], last = event.stamp, index
        elif event.stamp > down.get(event.rank, event.stamp) + AFTERMATH:
            ends.append(last)
            down.clear()
    return ends


def _ends_by_tasks(events: list[Event]) -> list[int]:
    """Return the index of the last end of each attempt by srun's lines: a task that ends a second time was started again."""
    ends, seen, last = list[int](), set[Any](), -1
    for index, event in enumerate(events):
        if isinstance(event, Exit) and event.via == "srun" and event.task is not None:
            if (event.host, event.task) in seen:
                ends.append(last)
                seen.clear()
            seen.add((event.host, event.task))
            last = index
    return ends


def without_earlier(events: Sequence[Event], over: float) -> list[Event]:
    """Return the events without those that are older than `over`, when the attempt before ended (as stamps are printed).

    A file that shows no restart itself is cut after its last stamp up to then. Where a rank's own file has later stamps only,
    lines without a stamp before the first of them are of the earlier attempt too: a process that ended by what they report would
    have printed nothing more. The clocks of hosts are assumed to agree within the gap between attempts.
    """
    files: dict[str, list[Event]] = defaultdict(list)
    for event in events:
        files[event.file].append(event)
    return [e for of_file in files.values() for e in _later(sorted(of_file, key=lambda e: e.line), over)]


def drop_copies(launchers: Sequence[Reading], others: Sequence[Reading], own: Sequence[Reading]) -> None:
    """Remove from launchers' logs what they copied from ranks of `others`, earlier attempts, but not from ranks of `own`."""
    copied = {(e.kind, e.text) for r in others for e in r.all_events}
    copied -= {(e.kind, e.text) for r in own for e in r.all_events}
    for reading in launchers:
        for events in (reading.events, reading.log.events):
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
