"""Copies of several files in one text, each below its name: what is below the log of a rank is that rank's.

    == worker_0/rank_03.log                 also `==> rank3.log <==`, `--- rank 3 ---`, `rank 3:`
    EI0002: The wait execution of the Notify register times out. ...

A section ends at the next title, at the name of a file of no rank, at a command, and at an empty line before a person's sentence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hangscope.ingest.excerpts.excerpt import MOST
from hangscope.ingest.files.numbering import of_file_titles
from hangscope.ingest.job_logs.vocabulary import of_people
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.rank_words import ranks_titled
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LEAST = 2  # titles of different ranks
_FILE = regex(r"^[=#*>-]{0,6} ?[\w./-]{1,200}\.(?:log|txt|out|err) ?[=#*<:-]{0,6}$")
_COMMAND = regex(r"^\S{0,60}[$#] \S")


def titled(events: Iterable[Event], kept: KeptText, size: int) -> Iterator[Event]:
    """Yield the events of a log, those below a rank's title with that rank where their own line states none."""
    ranks = _sections(kept) if size <= MOST and not kept.own and kept.complete else {}
    for event in events:
        rank = ranks.get(event.line)
        yield replace(event, rank=rank) if rank is not None and not event.by_launcher else event


def _sections(kept: KeptText) -> dict[int, int]:
    """Return the rank of each line below a rank's title that states none itself; nothing where fewer than two ranks have titles."""
    found: dict[int, int] = {}
    titles = set[int]()
    now: int | None = None
    before = 0
    lines = [kept.line(place) for place in range(len(kept.numbers))]
    counted = of_file_titles(line.text for line in lines)
    for line, number in zip(lines, kept.numbers, strict=True):
        text = line.text
        named = ranks_titled(text) if line.rank is None else ()
        named = named or ((counted[text],) if text in counted else ())
        if len(named) == 1 and not text.startswith((" ", "\t")):
            now = named[0]
            titles.add(now)
        elif named or _FILE.match(text) or _COMMAND.match(text) or (number > before + 1 and of_people(text)):
            now = None
        elif now is not None and line.rank is None:
            found[number] = now
        before = number
    return found if len(titles) >= _LEAST else {}
