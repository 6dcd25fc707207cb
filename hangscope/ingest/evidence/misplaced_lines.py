"""Lines of one rank in the log of another: they show that a log was damaged, or that it holds a piece of another job's."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from hangscope.errors import Note
from hangscope.events import Event
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.torch_logs.two_ranks import HINT, PREFIX
from hangscope.ingest.workers.reading import Reading

_LEAST_LOGS = 3  # of two ranks' logs, one that holds lines of both may be everybody's
_LAUNCHERS = 0  # the rank whose log may be the launcher's as well


def misplaced(readings: Sequence[Reading]) -> Iterator[Note]:
    """Yield a note for each log of one rank that holds a line of another, whose lines stand in a log of its own.

    So does what a launcher says of another rank's end: it is in the launcher's log, or in that of the first rank.
    """
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
