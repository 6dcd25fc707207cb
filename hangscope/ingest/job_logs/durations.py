"""How long each rank says that a part of its steps takes: the usual time of each labelled duration at the end of a log.

    step 48 loss 0.3202 load 0.52 comp 0.00 sync 0.04
    train: step 3 data 4.20 s compute 0.01 s
    step 38, ce 5.266, cuda:5 data 0.003 compute 3.18, 3.305 sec/step

Ranks that wait for each other all print the same time of a step. What one of them alone spends in a part of it holds the others up.
"""

from __future__ import annotations

from collections import defaultdict
from statistics import median

from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LAST, _LEAST = (
    200,
    2,
)  # lines of a log's end that are read, and of one label and rank that show what is usual
_LABELLED = regex(
    r"(?<![\w.])([A-Za-z][A-Za-z_-]{1,23}(?:\([^()]{1,30}\))?)[ _]?(?:time|took|for)?[ =:]{1,3}(\d{1,7}(?:\.\d{1,6})?) ?(ms\b|s\b|secs?\b|seconds\b)?(?![\w%/:]|\.\d)"
)
#: the parts of a step
_TIMED = regex(
    r"(?i)^(?:d?load|data|comp|fetch|read|io$|h2d|fwd|bwd|forward|backward|optim|prep|collat|decod|augment|tokeni|gen|rollout|sync|comm|wait|reduc|all_?reduce|barrier|save|eval)"
)
#: parts of a step in which a rank waits for others
WAITS = regex(r"(?i)^(?:sync|comm|wait|reduc|all_?reduce|barrier|idle)")
_HINT = regex(
    rb"(?i)(?:load|data|comp|fetch|read|io|h2d|fwd|bwd|ward|optim|prep|coll|code|augm|toke|gen|roll|sync|comm|wait|reduc|barr|save|eval)[\w()/ -]{0,32}[ =:]\d"
)
_DEVICE = regex(r"\b(?:cuda|gpu|device)[: ]{0,2}(\d{1,3})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations(Event, calm=True):
    """The usual time (s) of each of the parts of a rank's steps that its last lines label, and of how many lines (`counts`)."""

    labels: tuple[str, ...]
    seconds: tuple[float, ...]
    counts: tuple[int, ...]


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
            for m in _LABELLED.finditer(line.text)
            if _TIMED.match(m[1])
        ]
        if not parts:
            continue
        rank = line.rank
        if rank is None and not kept.own and (device := _DEVICE.search(line.text)):
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
