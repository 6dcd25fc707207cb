"""Whose a line of a short text is by what is around it: a title above, lines of one rank on both sides, what a person writes.

    == worker_0/rank_03.log                 also `==> rank3.log <==`, `--- rank 3 ---`, `rank 3:`
    EI0002: The wait execution of the Notify register times out. ...

    [rank5] caught exception, cleaning up
    Traceback (most recent call last):      that a rank prints itself, and its launcher adds nothing
      ...
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.81 GiB.
    [rank5] destroying process group ...

    (ranks 1 3 5 6 have the same lines as 2)

What is below a title ends at the next one, at the name of a file of no rank, at a command, and at an empty line before a person's sentence.
A traceback is also its rank's below the line with which a logger reports it: `2026-12-08 15:01:42 | rank 2 | ERROR | worker failed`.

Watchdog timeouts that a person shortened are as the whole ones beside them:

    [rank0]:[E ...] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, OpType=ALLREDUCE, ..., Timeout(ms)=1800000) ran for ...
    [rank4]:[E ...] [Rank 4] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=9631, ...
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Any

from hangscope.ingest.job_logs.faults import OomCuda
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.rank_words import likewise
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LONGEST = 60  # lines of a traceback
_HEADER = "Traceback (most recent call last)"
_OF_ANOTHER = regex(r"Traceback \(most recent call last\): \(RANK (\d{1,7})\)")
_ERROR = regex(r"\b(?:ERROR|CRITICAL|FATAL)\b")
_NEAR, _ALIKE = 3, 256  # lines above a person's words, and events that these repeat
_REPEATED = (WatchdogTimeout, GlooTimeout, RankException)
_STATED = ("seq", "op", "numel_in", "numel_out", "timeout_ms")


def placed(events: Sequence[Event], kept: KeptText) -> Iterator[Event]:
    """Yield the events of a short text, each with its rank where its own line states none and what is around it does."""
    sections = {kept.numbers[place]: rank for place, rank in kept.sections.items()}
    places, quoted = {number: place for place, number in enumerate(kept.numbers)}, _quoted(kept)
    for event in events:
        rank = quoted.get(event.line)
        if isinstance(event, RankException | OomCuda) and event.rank is None and event.pid is None:
            above, below = (_speaker(kept, places, event.line, step) for step in (-1, 1))
            rank = above if above is not None and above == below else _logger(kept, places, event.line)
        rank = rank if event.by_launcher else sections.get(event.line, rank)
        yield event if rank is None else replace(event, rank=rank)


def _quoted(kept: KeptText) -> dict[int, int]:
    """Return the rank of each line below the header of a traceback that one rank prints of another one (torch/distributed/checkpoint/api.py)."""
    found: dict[int, int] = {}
    now: tuple[int, int | None, str] | None = None  # whose traceback, and who prints it
    for place, number in enumerate(kept.numbers):
        line = kept.line(place)
        if header := _OF_ANOTHER.search(line.text):
            now = (int(header[1]), line.rank, line.origin)
        elif now is not None and now[1:] == (line.rank, line.origin):
            found[number] = now[0]
        else:
            now = None
    return found


def _logger(kept: KeptText, places: Mapping[int, int], number: int) -> int | None:
    """Return the rank of an error line right above the traceback that ends at a line, as a logger prints both."""
    for at in range(number, number - _LONGEST, -1):
        if (place := places.get(at)) is None:
            return None
        if kept.line(place).text.lstrip().removeprefix("^C").startswith(_HEADER):
            line = kept.own_line(places[at - 1]) if at - 1 in places else None
            return line.rank if line is not None and _ERROR.search(line.text) else None
    return None


def _speaker(kept: KeptText, places: Mapping[int, int], number: int, step: int) -> int | None:
    """Return the rank of the next line with one in a direction; None where an empty line, another writer or the end comes first.

    Below, it is the next line or the one after it. A line without the prefix that its writer's lines have is another writer's.
    """
    for distance in range(1, 1 + (_LONGEST if step < 0 else 2)):
        place = places.get(number + step * distance)
        line = kept.own_line(place) if place is not None else None
        if line is None or not line.text.strip() or line.pid is not None:
            return None
        if line.rank is not None or line.origin:
            return line.rank
    return None


def repeated(events: Sequence[Event], kept: KeptText) -> list[Event]:
    """Return the errors of ranks of which a person writes that they show the same as another one or as the line above, each as that line's."""
    errors = [event for event in events if isinstance(event, _REPEATED)]
    found: list[Event] = []
    for number, text in kept.texts if errors else ():
        if (alike := likewise(text)) is not None:
            ranks, like = alike
            own = [e for e in errors if e.rank == like]
            if like is None:
                own = [e for e in errors if 0 < number - e.line <= _NEAR][-1:]
            found += [replace(e, rank=r, line=number, text=text) for r in ranks for e in own]
    return found[:_ALIKE]


def completed(events: Sequence[Event]) -> list[Event]:
    """Return the events of a log, shortened timeouts with what all whole ones of their group and seq state; without those that lack an op."""
    timeouts = [event for event in events if isinstance(event, WatchdogTimeout)]
    whole: dict[str | None, set[tuple[Any, ...]]] = defaultdict(set)
    for event in timeouts:
        if event.op and event.timeout_ms is not None:
            whole[event.group_name].add(attrgetter(*_STATED)(event))
    found: dict[int, WatchdogTimeout] = {}
    for event in timeouts:
        fitting = [stated for stated in whole[event.group_name] if event.seq in (stated[0], None)]
        if event.timeout_ms is None and len(fitting) == 1:
            found[id(event)] = replace(event, **dict(zip(_STATED, fitting[0], strict=True)))
    known = (found.get(id(event), event) for event in events)
    return [e for e in known if not isinstance(e, WatchdogTimeout) or e.timeout_ms is not None or e.op]
