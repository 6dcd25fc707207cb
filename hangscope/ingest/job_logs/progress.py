"""The last sign of progress of each writer: a step count, or a line that reports the end of a loop.

    app r1: train step 2 done
    epoch done 1
     45%|####5     | 450/1000 [00:10<00:12, 44.2it/s]

Such lines have no fixed form and there are millions of them, so only the text just before an error and at the end
of a log is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.job_logs.vocabulary import words
from hangscope.ingest.lines.kept_text import KeptText
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.lines.rank_words import by_itself
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_CANDIDATE = regex(
    rb"[Ss]tep|STEP|xhausted|len\(|oader len|StopIter|\bcode\b|[Ii]ter|\bit[=: ]{1,3}\d|[Ee]poch|[Bb]atch|\d/\d|loop|rain|each|nished|done|[Ss]top|xit(?:ing|s|ed) |xiting|eaving|eturning|uitting|borting|hutting|bye|estroy"
)
_STEP = regex(
    r"(?i)\b(?:global[_ ]?)?(?:step|iteration|iter|batch|batch_idx|it)s?\b\s{0,8}[:=#\[(/]?\s{0,3}(\d{1,12})"
)
# how many a loop had
_BEFORE = regex(r"(?i)(?<![\w.-])(\d{1,12}) (?:steps|iterations|iters|its|batches|updates)\b")
#: how many steps a loop has, by a line that says nothing else
_LENGTH = regex(
    r"(?i)^\W{0,3}(?:(?:(?:train|val(?:id)?|my|own|local|num|data)[ _-]?){0,3}(?:loader|dataset|sampler)?(?: (?:has|holds|gives|yields|with|of))?[ :=]{0,3}(\d{1,12}) (?:batches|steps|iterations|iters)"
    r"|(?:len\(\w{0,12}loader\)|(?:data)?loader len(?:gth)?|num_batches|(?:number of )?(?:batches|steps)(?:[ _]per[ _]epoch|[ _]in[ _]epoch)?)[ =:]{1,3}(\d{1,12}))"
    r"(?: (?:per|in|each|in total|from|of|this|the|my|an|one|epoch|loader|shard) ?[\w ]{0,40})?\W{0,2}$"
)
_EPOCH = regex(r"(?i)\bepoch\b\s{0,3}[:=#\[(/]?\s{0,3}(\d{1,9})")
_OF = regex(r"\s{0,3}(?:/|of)\s{0,3}(\d{1,12})\b")
_BAR = regex(r"(?:\||\b)\s{0,4}(\d{1,12})/(\d{1,12}|\?) \[\d{1,3}:\d\d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress(Event):
    """The last line of a rank's output that counts steps (of `total`, where it says so), or one that says that a loop or epoch ended (`done`) or that the process stops (`leaving`).

    `over`: it says no more than that the whole job is over, or that the process ends well.
    `pace` is how many seconds before it the same was printed of the step before, where both carry times.
    """

    step: int | None = None
    pace: float | None = None
    total: int | None = None
    epoch: int | None = None
    done: bool = False
    leaving: bool = False
    over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopLength(Event, calm=True):
    """A rank prints how many steps (`total`) its loop has, before it begins or after its end."""

    total: int


def progress_events(kept: KeptText) -> list[Progress | LoopLength]:
    """Return per writer the last line that counts, the last that says a loop ended and the last that says it leaves or that all is over."""
    last: dict[tuple[str, str], tuple[Progress | LoopLength, Sequence[int]]] = {}
    for wording, places in kept.wordings.items():
        for of_one in kept.by_writer(places) if _CANDIDATE.search(wording) else ():
            line = by_itself(kept.line(of_one[-1]))
            event = _progress(line)
            if event is not None:
                key = (f"{line.origin}|{line.host}", _sort(event))
                if key not in last or last[key][1][-1] < of_one[-1]:
                    last[key] = event, of_one
    found = [_paced(event, kept, places) for event, places in last.values()]
    return sorted(found, key=lambda event: (event.line, event.text))


def _sort(event: Progress | LoopLength) -> str:
    if isinstance(event, LoopLength):
        return "length"
    counts = event.step is not None or event.epoch is not None or not event.over
    return "leaving" if event.leaving else "done" if event.done else "" if counts else "over"


def _paced(event: Progress | LoopLength, kept: KeptText, places: Sequence[int]) -> Progress | LoopLength:
    """Return an event with how long after the line before it, of the same wording, it was printed."""
    if isinstance(event, LoopLength) or event.step is None or event.in_the_year is None or len(places) < 2:
        return event
    before = _progress(by_itself(kept.line(places[-2])))
    moment = before.in_the_year if before is not None else None
    if moment is None or moment > event.in_the_year:
        return event
    return replace(event, pace=event.in_the_year - moment)


def _progress(line: Line) -> Progress | LoopLength | None:
    if words("no_progress").search(line.text) or (
        line.source and not line.source.rpartition(":")[0].endswith(".py")
    ):
        return None
    done = words("loop_ended").search(line.text)
    epoch = _EPOCH.search(line.text)
    bar = _BAR.search(line.text)
    if line.text[:1].isspace() and not bar:
        return None  # a line of a traceback or of a report
    if bar and words("loads").search(line.text, 0, bar.start()):
        return None
    if not bar and (length := _LENGTH.match(line.text)):
        return line.event(LoopLength, total=int(length[1] or length[2]))
    counted = bar or _STEP.search(line.text)
    leaving = words("leaves").search(line.text)
    over = words("over").search(line.text)
    if done is None and counted is None and epoch is None and leaving is None and over is None:
        return None
    of = _OF.match(line.text, counted.end(1)) if counted else _BEFORE.search(line.text) if done else None
    return line.event(
        Progress,
        total=int(of.group(1)) if of else None,
        step=int(counted.group(1)) if counted else None,
        epoch=int(epoch.group(1)) if epoch else None,
        done=bool(done and not leaving),
        leaving=bool(leaving),
        over=bool(over),
    )
