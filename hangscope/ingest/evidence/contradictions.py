"""Lines that cannot stand where they stand: they show that a log was damaged, or that it holds a piece of another job's.

    [rank4]:[E312 07:30:16.261318054 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID 0(default_pg) Rank 7] First PG on this rank ...

speaks of two ranks, and in the default group they are one. Whose such a line is cannot be known, nor what else of its file is changed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from hangscope.errors import Note
from hangscope.events import Event
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, is_default_group
from hangscope.ingest.workers.reading import Reading

_PREFIX = re.compile(r"\[rank(-?\d{1,400})\]:")
_LEAST_LOGS = 3  # of two ranks' logs, one that holds lines of both may be everybody's
_HINT = "copy the log again from where the job wrote it, or leave it out"


def contradictions(readings: Sequence[Reading]) -> Iterator[Note]:
    """Yield a note for each log with a line that contradicts itself, or that is of a rank whose lines stand in a log of its own."""
    own = _own_logs(readings)
    for reading in readings:
        for event in reading.log.events if reading.log is not None else ():
            why = _of_itself(event) or _of_its_file(event, reading, own)
            if why:
                yield Note("contradiction", why, event.file, event.line, _HINT)
                break


def _of_itself(event: Event) -> str:
    prefix = _PREFIX.search(event.text)
    if prefix is None:
        return ""
    told = int(prefix[1])
    if not 0 <= told < MAX_RANKS:
        return f"a line says that it is of rank {prefix[1][:24]}, which no job has"
    if isinstance(event, GroupEvent) and event.group_rank is not None:
        names_default = is_default_group({"group_name": event.group_name, "group_desc": event.group_desc})
        if names_default and event.group_desc and event.group_rank != told:
            return f"a line says that it is of rank {told}, and of rank {event.group_rank} of the group of all ranks"
    return ""


def _own_logs(readings: Sequence[Reading]) -> dict[int, set[str]]:
    """Return the logs that are one rank's by name and hold lines with its prefix, by rank."""
    own: dict[int, set[str]] = defaultdict(set)
    for reading in readings:
        log = reading.log
        if log is not None and log.rank is not None and log.rank in _writers(reading):
            own[log.rank].add(reading.file)
    return own


def _writers(reading: Reading) -> set[int]:
    """Return the ranks that lines of a log begin with."""
    assert reading.log is not None
    found = {m[1] for e in reading.log.events if not e.by_launcher and (m := _PREFIX.match(e.text))}
    return {int(number) for number in found if not number.startswith("-") and len(number) < 8}


def _of_its_file(event: Event, reading: Reading, own: dict[int, set[str]]) -> str:
    """Return why a line is of another rank than its log: where each rank has a log, and few others' lines stand in this one."""
    mine = reading.log.rank if reading.log is not None else None
    if mine is None or event.rank in (None, mine) or len(own) < _LEAST_LOGS or event.by_launcher:
        return ""
    if event.rank not in own or not _PREFIX.match(event.text) or reading.file in own[event.rank]:
        return ""
    others = _writers(reading) - {mine}
    if len(others) * 2 >= len(own):
        return ""  # everybody's output under the name of one
    return f"a line of rank {event.rank} stands in the log of rank {mine}, though rank {event.rank} has a log of its own"
