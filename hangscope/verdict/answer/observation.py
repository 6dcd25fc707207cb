"""One part of an answer: what lines of one kind show, in a sentence that quotes them, and what to collect next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.stop import clock
from hangscope.ingest.excerpts.line_groups import plain
from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.model.conclusion import Collect, Evidence
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.phrasing import short, without_prefix

_LEAST = 30  # characters of a line that are quoted in any case
_VARIANTS = 3  # different lines of one kind that are quoted
_FEW_TIMES = 2  # that are not worth a word
_LONG = 30  # seconds between the first and the last of several lines
_BEGUN = regex(r"(?<=[.;])\s?[A-Z][^.;]{0,60}$")  # a sentence that a guess ends
_RANK = regex(r"(?i)\brank[ :=]{0,2}\d{1,7}")
_RAISED = regex(r"^[\w.]{0,80}(?:Error|Exception): ")
_ADDRESS = regex(
    r"\b[\da-f.:]{4,40}(?:%\w{1,20})?<\d{1,5}>|\b(?:opcode|len) \d{1,9}\b|\b0x[\da-f]{4,16}\b| \((?:Send|Recv)\)"
)

#: What a message says of its possible reasons: no fact, and no hint that others are excluded.
HEDGED = regex(
    r"(?i)\b(?:likely|possibly|probably|perhaps|maybe|may (?:be|indicate|mean)|might be|typical(?:ly)?|could be|can be|e\.g\.|for example|such as|please (?:check|make sure|ensure)|make sure|if (?:you|the|this|it))(?:\b|(?<=\.))(?:[^.;\n]|\.(?! [A-Z]|$)){0,200}"
)


@dataclass(frozen=True, slots=True)
class Observation:
    """What lines of one kind show, what is wanted next (of what kind), and the ranks (global) that must contain the root cause.

    `proves`: the job stopped. `blamed`: the lines themselves name `suspects`. `events` are the lines that were read, `cause` is the
    verdict that they establish by themselves. `vague`: it adds nothing to a verdict.
    """

    shows: str
    wanted: str = ""
    what: str = "log"
    suspects: tuple[int, ...] = ()
    proves: bool = False
    blamed: bool = False
    events: tuple[Event, ...] = ()
    cause: str = ""
    vague: bool = False

    @property
    def next(self) -> Collect | None:
        """Return what to collect, None if the lines ask for nothing."""
        return Collect(self.suspects, self.what, self.wanted) if self.wanted else None

    def reads(self, facts: Iterable[Evidence]) -> bool:
        """Return whether it was read from a line that is one of these facts."""
        places = {(fact.source.file, fact.source.line) for fact in facts if fact.source is not None}
        return any((e.file, e.line) in places for e in self.events)


def lasted(milliseconds: int) -> str:
    """Return a duration as `600 s`, and from 20 minutes on also in minutes or hours."""
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    seconds = round(milliseconds / 1000)
    if seconds >= 7200:
        return f"{seconds} s ({seconds / 3600:.3g} hours)"
    return f"{seconds} s ({seconds / 60:.3g} minutes)" if seconds >= 1200 else f"{seconds} s"


def repeated(count: int, began: float | None, ended: float | None, what: str = "times") -> str:
    """Return ` (5 times from 07:12:44 to 07:16:44, 240 s)`; empty of a line that came once or twice."""
    span = ""
    if began is not None and ended is not None and ended - began >= _LONG:
        span = f" from {clock(began)} to {clock(ended)}, {lasted(round((ended - began) * 1000))}"
    return f" ({count} {what}{span})" if span or count > _FEW_TIMES else ""


def bare(text: str) -> str:
    """Return a line without what loggers and launchers put in front of it."""
    return without_prefix(plain(strip_prefix(text).text))


def message_of(event: Event) -> str:
    """Return the bare line of an event, up to its guesses about reasons."""
    text = bare(event.text)
    guess = HEDGED.search(text, _LEAST)
    return _BEGUN.sub("", text[: guess.start()]).rstrip(" (") if guess else text


def quoted(events: Sequence[Event]) -> str:
    """Return lines as they were printed: those that differ only in the rank once, others each with its ranks."""
    alike: dict[str, list[Event]] = {}
    for event in events:
        alike.setdefault(_RAISED.sub("", _ADDRESS.sub("", _RANK.sub("", message_of(event)))), []).append(
            event
        )
    ranks_of = [sorted({e.rank for e in same if e.rank is not None}) for same in alike.values()]
    differ = any(ranks != ranks_of[0] for ranks in ranks_of)
    quotes = []
    for same, ranks in list(zip(alike.values(), ranks_of, strict=True))[:_VARIANTS]:
        whose = f"{ranks_phrase(ranks)}: " if ranks and differ else ""
        times = repeated(len(same), same[0].stamp, same[-1].stamp) if len(ranks) < len(same) else ""
        quotes.append(f"{whose}'{short(message_of(same[0]))}'{times}")
    more = len(alike) - len(quotes)
    return "; ".join(quotes) + (f"; and {more} more such lines" if more else "")


def pasted(case: Case) -> bool:
    """Return whether the text is one excerpt, and not what a job left in files of its own."""
    return len({e.file for events in case.statements.kinds.values() for e in events}) < 2
