"""Lines that show that a log was damaged or holds a piece of another log: of one rank in the log of another, or of two ranks at once.

    [rank4]:[E312 07:30:16.261318054 ProcessGroupNCCL.cpp:2636] [PG ID 0 PG GUID 0(default_pg) Rank 7] First PG on this rank ...

In the default group a rank's number is its global one. Whose such a line is cannot be known, nor what else of its file is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import islice

from hangscope.errors import Note
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.c10d import GroupEvent, is_default_group
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event
from hangscope.model.regex import regex

_PREFIX = regex(r"\[rank(-?\d{1,400})\]:")
#: What begins like a record of c10's logger and is none: `[rank5]:[Evalid usage ...`, of which a piece was lost.
_CUT_HEADER = regex(r"\[rank\d{1,7}\]:\[[EWIF][a-z][^\]]{0,500}$")
#: srun names the host before a task: `srun: error: node1: task 13: Exited`. A label that begins a line follows an exception.
_CUT_SRUN = regex(r"srun: (?!error: \S{1,253}: tasks? )")
_GLUED_LABEL = regex(r"(?:Error|Exception|Interrupt|Exit)\d{1,7}: Traceback \(most recent call last\)")
_HINT = "copy the log again from where the job wrote it, or leave it out"
_LEAST_LOGS = 3  # of two ranks' logs, one that holds lines of both may be everybody's
_HEAD = 50  # characters of a line that hold a time and the writer
_LAUNCHERS = 0  # the rank whose log may be the launcher's as well


def misplaced(readings: Sequence[Reading], rank_of: Callable[[Reading], int | None]) -> Iterator[Note]:
    """Yield notes on lines that contradict themselves, and on lines of other ranks in the log of one; of each log the first of a kind.

    `rank_of` returns whose process a log is, None of one that several print into.
    """
    logs = [(reading.log, rank_of(reading)) for reading in readings]
    writers = [{event.rank for event in log.events if _is_prefixed(event)} for log, _ in logs]
    named = {rank for _, rank in logs} - {None}
    own = {rank for (_, rank), ranks in zip(logs, writers, strict=True) if rank in ranks} - {None}
    for (log, rank), ranks in zip(logs, writers, strict=True):
        checks: list[Callable[[Event], str]] = [_contradiction]
        if rank not in (None, _LAUNCHERS) and len(named) >= _LEAST_LOGS:
            checks.append(partial(_end_of_another, rank, named))
        everybodys = len(ranks - {rank}) * 2 >= len(named)  # output under the name of one
        if rank is not None and len(own) > 1 and len(named) >= _LEAST_LOGS and not everybodys:
            checks.append(partial(_line_of_another, rank))
        for check in checks:
            wrong = ((event, text) for event in log.events if (text := check(event)))
            for event, text in islice(wrong, 1):
                yield Note("contradiction", text, event.file, event.line, _HINT)


def _is_prefixed(event: Event) -> bool:
    return not event.by_launcher and _PREFIX.search(event.text[:_HEAD]) is not None


def _line_of_another(rank: int, event: Event) -> str:
    if event.rank in (None, rank) or not _is_prefixed(event):
        return ""
    return f"a line of rank {event.rank} is in the log of rank {rank}"


def _end_of_another(rank: int | None, named: Container[int | None], event: Event) -> str:
    whose = event.rank if event.rank is not None else event.task
    if not isinstance(event, Exit) or whose in (None, rank) or whose not in named:
        return ""
    return f"a launcher's line on the end of rank {whose} is in the log of rank {rank}"


def _contradiction(event: Event) -> str:
    if (isinstance(event, Exit) and _CUT_SRUN.match(event.text)) or _GLUED_LABEL.search(event.text):
        return "a line lacks a piece, or two lines are glued together"
    prefix = _PREFIX.search(event.text)
    if prefix is None:
        return ""
    rank = int(prefix[1])
    if not 0 <= rank < MAX_RANKS:
        return f"a line claims to be of rank {prefix[1][:24]}, which no job has"
    if "]: what(): " in event.text or "]:  what(): " in event.text:
        return ""  # the prefix is of whoever copied the line
    if _CUT_HEADER.match(event.text):
        return f"a line of rank {rank} lacks a piece between its first letters and the rest"
    second = _PREFIX.search(event.text, prefix.end())
    if second is not None and second[1] == prefix[1] and event.text[prefix.end() : second.start()].strip():
        return f"two lines of rank {rank} are glued together"
    if isinstance(event, GroupEvent) and event.group_desc and event.group_rank not in (None, rank):
        group = {"group_name": event.group_name, "group_desc": event.group_desc}
        if is_default_group(group):
            return f"a line claims to be of rank {rank}, and of rank {event.group_rank} of the group of all ranks"
    return ""
