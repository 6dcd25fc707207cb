"""How long each rank says that a part of its steps takes, and how long its longest single work lasted, at the end of a log.

    step 48 loss 0.3202 load 0.52 comp 0.00 sync 0.04
    train: step 3 data 4.20 s compute 0.01 s
    step 38, ce 5.266, cuda:5 data 0.003 compute 3.18, 3.305 sec/step

Ranks that wait for each other all print the same time of a step. What one of them alone spends in a part of it holds the others up.
A single work is what a line reports as done, or what lies between two lines of a rank:

    2026-02-11 06:12:40 | rank 3 | writing the snapshot
    2026-02-11 06:29:51 | rank 3 | snapshot written in 1031 s
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line, quote
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LAST = 200  # lines of a log's end that are read
_HINT = regex(
    rb"(?i)(?:load|data|comp|fetch|read|io|h2d|fwd|bwd|ward|optim|prep|coll|code|augm|toke|gen|roll|sync|comm|wait|reduc|barr|save|eval)[\w()/ -]{0,32}[ =:]\d"
)
#: how long a work lasted that is done
LASTED = regex(
    r"(?i)\b(?:in|took|takes|elapsed)\b[^\d.;]{0,16}(?<![\d.])(\d{2,6}(?:\.\d{1,6})?) ?(s|secs?|seconds|min|minutes)\b"
)
_LONG = 60  # s: shorter than the timeouts of collectives


class Durations(Event, calm=True):
    """The usual time (s) of each of the parts of a rank's steps that its last lines label, and of how many lines (`counts`)."""

    labels: tuple[str, ...]
    seconds: tuple[float, ...]
    counts: tuple[int, ...]


class LongWork(Event, calm=True):
    """The last line of the longest work (`seconds`) of a rank alone, as the line states it or by the time of the rank's line before, `after`."""

    seconds: float
    after: str = ""


def lasted(text: str) -> float:
    """Return the seconds of a work that a line reports as done; 0 where it reports none."""
    match = LASTED.search(text)
    return float(match[1]) * (60 if match[2][0] in "mM" else 1) if match else 0.0


def long_works(kept: KeptText) -> list[Event]:
    """Return the longest work of each rank in the last lines of a log, of the lines that its own program printed."""
    found: dict[int, LongWork] = {}
    before: dict[int, Line] = {}
    for place in range(max(0, len(kept.raw) - _LAST), len(kept.raw)):
        line = kept.own_line(place)
        if line.rank is None or line.source is not None or words("not_its_own").search(line.text):
            continue
        last, before[line.rank] = before.get(line.rank), line
        pause = _between(last, line)
        seconds = max(pause, lasted(line.text))
        if seconds > max(_LONG, found[line.rank].seconds if line.rank in found else 0):
            after = quote(last.text) if last is not None and pause >= seconds else ""
            found[line.rank] = line.event(LongWork, seconds=seconds, after=after)
    return [*found.values()]


def _between(last: Line | None, line: Line) -> float:
    """Return the seconds between two lines of a rank; 0 where they are not known."""
    if last is None:
        return 0.0
    if last.time is not None and line.time is not None:
        return line.time - last.time
    return line.stamp - last.stamp if last.stamp is not None and line.stamp is not None else 0.0


def durations(kept: KeptText) -> list[Event]:
    """Return the durations that the last lines of a log state, one event for each rank that prints there."""
    found: dict[int | None, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    last: dict[int | None, Line] = {}
    for place in range(max(0, len(kept.raw) - _LAST), len(kept.raw)):
        if not _HINT.search(kept.raw[place]):
            continue
        line = kept.own_line(place)
        parts = [
            (m[1], float(m[2]) / (1000 if m[3] == "ms" else 1))
            for m in words("labelled_duration").finditer(line.text)
            if words("parts_of_a_step").match(m[1])
        ]
        if not parts:
            continue
        rank = line.rank
        if rank is None and not kept.own and (device := words("device_of_line").search(line.text)):
            rank = int(device[1])
        last[rank] = line
        for label, seconds in parts:
            found[rank][label.lower()].append(seconds)
    return [
        last[rank].event(
            Durations,
            rank=rank,
            labels=tuple(by_label),
            seconds=tuple(map(median, by_label.values())),
            counts=tuple(map(len, by_label.values())),
        )
        for rank, by_label in found.items()
    ]
