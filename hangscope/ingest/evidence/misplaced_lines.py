"""Lines that show that a log was damaged, or that it holds a piece of another job's: of one rank in the log of another, of two ranks at once.

    [rank4]:[E312 07:30:16.261318054 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID 0(default_pg) Rank 7] First PG on this rank ...

In the default group a rank's number is its global one. Whose such a line is cannot be known, nor what else of its file is changed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from hangscope.errors import Note
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, is_default_group
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event
from hangscope.model.regex import regex

PREFIX = regex(r"\[rank(-?\d{1,400})\]:")
HINT = "copy the log again from where the job wrote it, or leave it out"
_LEAST_LOGS = 3  # of two ranks' logs, one that holds lines of both may be everybody's
_LAUNCHERS = 0  # the rank whose log may be the launcher's as well


def misplaced(readings: Sequence[Reading]) -> Iterator[Note]:
    """Yield a note for each log of one rank that holds a line of another, whose lines stand in a log of its own.

    So does what a launcher says of another rank's end: it is in the launcher's log, or in that of the first rank.
    """
    for reading in readings:
        yield from contradiction(reading.log.events if reading.log is not None else ())
    yield from _ends_of_others(readings)
    writers = {reading.file: _writers(reading) for reading in readings if reading.log is not None}
    own: dict[int, set[str]] = defaultdict(set)
    for reading in readings:
        if (
            reading.log is not None
            and reading.log.rank is not None
            and reading.log.rank in writers[reading.file]
        ):
            own[reading.log.rank].add(reading.file)
    if len(own) < _LEAST_LOGS:
        return
    for reading in readings:
        mine = reading.log.rank if reading.log is not None else None
        if mine is None or len(writers[reading.file] - {mine}) * 2 >= len(own):
            continue  # no rank's own, or everybody's output under the name of one
        for event in reading.log.events if reading.log is not None else ():
            theirs = event.rank
            if theirs not in (None, mine) and theirs in own and _is_prefixed(event):
                why = f"a line of rank {theirs} stands in the log of rank {mine}, though rank {theirs} has a log of its own"
                yield Note("contradiction", why, event.file, event.line, HINT)
                break


def _writers(reading: Reading) -> set[int]:
    """Return the ranks that lines of a log begin with."""
    events = reading.log.events if reading.log is not None else ()
    return {event.rank for event in events if event.rank is not None and _is_prefixed(event)}


def _is_prefixed(event: Event) -> bool:
    return not event.by_launcher and PREFIX.match(event.text) is not None


def _ends_of_others(readings: Sequence[Reading]) -> Iterator[Note]:
    logs = [reading.log for reading in readings if reading.log is not None and reading.log.rank is not None]
    named = {log.rank for log in logs}
    for log in logs if len(named) >= _LEAST_LOGS else ():
        for event in log.events if log.rank != _LAUNCHERS else ():
            whose = event.rank if event.rank is not None else event.task
            if isinstance(event, Exit) and whose not in (None, log.rank) and whose in named:
                why = f"a launcher's line on the end of rank {whose} stands in the log of rank {log.rank}"
                yield Note("contradiction", why, event.file, event.line, HINT)
                break


def contradiction(events: Iterable[Event]) -> list[Note]:
    """Return a note on the first line that contradicts itself, of the events of one log."""
    for event in events:
        why = _why(event)
        if why:
            return [Note("contradiction", why, event.file, event.line, HINT)]
    return []


def _why(event: Event) -> str:
    prefix = PREFIX.search(event.text)
    if prefix is None:
        return ""
    told = int(prefix[1])
    if not 0 <= told < MAX_RANKS:
        return f"a line says that it is of rank {prefix[1][:24]}, which no job has"
    copied = (
        "]: what(): " in event.text or "]:  what(): " in event.text
    )  # a prefix of whoever copied the line
    second = PREFIX.search(event.text, prefix.end())
    between = event.text[prefix.end() : second.start()].strip() if second is not None else ""
    if second is not None and second[1] == prefix[1] and between and not copied:
        return f"two lines of rank {told} are glued together"
    if (
        isinstance(event, GroupEvent)
        and event.group_desc
        and event.group_rank not in (None, told)
        and not copied
    ):
        group = {"group_name": event.group_name, "group_desc": event.group_desc}
        if is_default_group(group):
            return f"a line says that it is of rank {told}, and of rank {event.group_rank} of the group of all ranks"
    return ""
