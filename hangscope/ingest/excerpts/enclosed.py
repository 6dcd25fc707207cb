"""Tracebacks without a prefix between two lines of one rank, as when it prints them itself and its launcher adds nothing.

[rank5] caught exception, cleaning up
Traceback (most recent call last):
  ...
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 5.81 GiB.
[rank5] destroying process group ...

Or below the line with which a logger reports an exception: `2026-12-08 15:01:42 | rank 2 | ERROR | worker failed in step 313`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from hangscope.ingest.excerpts.excerpt import MOST
from hangscope.ingest.job_logs.faults import OomCuda
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LONGEST = 60  # lines of a traceback
_HEADER = "Traceback (most recent call last)"
_ERROR = regex(r"\b(?:ERROR|CRITICAL|FATAL)\b")


def enclosed(events: Iterable[Event], kept: KeptText, size: int) -> Iterator[Event]:
    """Yield the events of a log, those of a traceback between two lines of one rank with that rank."""
    if size > MOST or kept.own:
        yield from events
        return
    places = {at: place for place, at in enumerate(kept.numbers)}
    for event in events:
        if not isinstance(event, RankException | OomCuda) or event.rank is not None or event.pid is not None:
            yield event
            continue
        above, below = (_speaker(kept, places, event.line, step) for step in (-1, 1))
        if above is None or above != below:
            above = _logger(kept, places, event.line)
        yield replace(event, rank=above) if above is not None else event


def _logger(kept: KeptText, places: Mapping[int, int], number: int) -> int | None:
    """Return the rank of an error line right above the traceback that ends at a line, as a logger prints both."""
    for at in range(number, number - _LONGEST, -1):
        place = places.get(at)
        if place is None:
            return None
        if kept.line(place).text.lstrip().removeprefix("^C").startswith(_HEADER):
            line = kept.own_line(places[at - 1]) if at - 1 in places else None
            return line.rank if line is not None and _ERROR.search(line.text) else None
    return None


def _speaker(kept: KeptText, places: Mapping[int, int], number: int, step: int) -> int | None:
    """Return the rank of the next line with one in a direction; None where an empty line, another writer or the end comes first."""
    for offset in range(_LONGEST):
        number += step
        place = places.get(number)
        line = kept.own_line(place) if place is not None else None
        if (
            line is None
            or not line.text.strip()
            or line.pid is not None
            or (line.rank is None and line.origin)
        ):
            return None  # a line without the prefix that its writer's lines have is another writer's
        if line.rank is not None:
            return line.rank
        if step > 0 and offset:
            return None  # right below it
    return None
