"""The lines of a short text, those that are alike but for their numbers together: how often, since when and by which ranks each was printed.

    07:14:44 70210:70899 [0] CCOM WARN Timeout waiting for RX (waited 120 sec) - retrying, [rank: 0/8/-1]
    Map (num_proc=14):  70%|#######   | 588020/838121 [6:02:13<4:21:40, 15.93 examples/s]

This holds for lines of any program, known or not: what a text shows beyond the forms that parsers know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.ingest.lines.layers import seconds_of_day
from hangscope.ingest.lines.prefixes import Line, strip_prefix
from hangscope.ingest.lines.rank_words import by_itself
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.dataclass import dataclass
from hangscope.model.events import since_new_year
from hangscope.model.regex import regex

_KEPT = 24  # groups
_SHOWN = 320  # characters of a line
_AS_ZERO = str.maketrans("123456789", "000000000")
_LAYERS = 3  # that loggers put in front of each other's lines
ERROR, WAIT, BAR, OTHER = "error", "wait", "bar", "other"
_BAR = regex(
    r"(?P<label>[^|%\r]{0,80}?):? {0,6}\d{1,3}%\|[^|\r]{0,80}\| *(?P<state>[\d.,]{1,16}\w?/[\d.,]{1,16}\w? \[[\d:]{4,12}<[\d:?]{1,12}, [^\]]{1,30}\])"
)
_FULL = regex(r"\b(\d{1,12})/\1\b")
_WORD_WITH_DIGIT = regex(r"(?<![\w.:])[a-zA-Z_.:]{0,80}\d[\w.:]*|\(nil\)")
_BLANKS = regex(r"\s{2,}")
_OF_RANK = regex(r"\b[Rr]ank(?:[ :=]{1,3}|\[)(\d{1,6})\b")
_CLOCK, _HEAD = regex(r"\b(\d\d):(\d\d):(\d\d)\b"), 70
_OF_SIZE = regex(r"\b[Rr]ank[ :=]{1,3}\d{1,6}(?:/| of | nranks )(\d{1,6})\b")


@dataclass(frozen=True, slots=True)
class LineGroup:
    """Lines that differ only in their numbers: `text` is the last one and `first` the first one, without what a logger puts in front.

    `kind` is error, wait, bar (a progress bar that counts no steps) or other; `ranks` printed them, of `size` where they state it. `began` and `ended` are seconds since 1 January.
    """

    kind: str
    text: str
    first: str
    numbers: tuple[int, ...]
    count: int
    ranks: tuple[int, ...] = ()
    size: int | None = None
    began: float | None = None
    ended: float | None = None

    @property
    def unfinished(self) -> bool:
        """Whether it is a progress bar that has not come to its end."""
        return self.kind == BAR and not _FULL.search(self.text)


def line_groups(lines: Iterable[tuple[int, str]]) -> tuple[LineGroup, ...]:
    """Return the groups of lines (number, text) in the order of their first lines: errors, waits and bars, and what several ranks printed."""
    found: dict[tuple[str, str], list[Line]] = {}
    alike: dict[str, list[tuple[int, str]]] = {}
    for number, raw in lines:
        for bar in _BAR.finditer(raw) if "%|" in raw else ():
            if words("loads").search(bar["label"]):
                label = bar["label"].strip()
                line = Line("", number, f"{label}: {bar['state']}", raw)
                found.setdefault((BAR, label), []).append(line)
                raw = raw[bar.end() :]
        if raw.strip():
            alike.setdefault(raw.translate(_AS_ZERO), []).append((number, raw))
    for same in alike.values():
        read = [by_itself(strip_prefix(raw, number)) for number, raw in same]
        kind = _kind(read[0].text, read[0].raw)
        if words("noise").search(same[0][1]) or (kind == OTHER and _rank(read[0]) is None):
            continue
        for line in read:
            found.setdefault((kind, _WORD_WITH_DIGIT.sub("#", line.text)), []).append(line)
    groups = [_group(kind, of_one) for (kind, _), of_one in found.items()]
    shown = [group for group in groups if group.kind != OTHER or len(group.ranks) > 1]
    return tuple(shown if len(shown) <= _KEPT else [*shown[: _KEPT // 2], *shown[-_KEPT // 2 :]])


def _group(kind: str, lines: Sequence[Line]) -> LineGroup:
    numbers = [line.number for line in lines]
    moments = [moment for line in lines if (moment := _moment(line)) is not None]
    sizes = [int(size[1]) for line in lines if (size := _OF_SIZE.search(line.text))]
    return LineGroup(
        kind,
        plain(lines[-1].text),
        plain(lines[0].text),
        tuple(numbers if len(numbers) <= _KEPT else [numbers[0], numbers[-1]]),
        len(numbers),
        tuple(sorted({rank for line in lines if (rank := _rank(line)) is not None})),
        sizes[-1] if sizes else None,
        moments[0] if moments else None,
        moments[-1] if moments else None,
    )


def tells_of_trouble(text: str) -> bool:
    """Return whether a line's words report an error, a timeout or an end, and not of what healthy jobs print as well."""
    return words("trouble").search(text) is not None and words("no_trouble").search(text) is None


def _kind(text: str, raw: str) -> str:
    if tells_of_trouble(text) and not words("no_trouble").search(raw):
        return ERROR
    return WAIT if words("waits").search(text) else OTHER


def _rank(line: Line) -> int | None:
    """Return who printed a line, or the only rank that it names."""
    named = _OF_RANK.findall(line.text) if line.rank is None else ()
    return int(named[0]) if len(named) == 1 else line.rank


def _moment(line: Line) -> float | None:
    """Return when a line was printed, in seconds since 1 January, or since midnight where it has a clock alone."""
    if line.time is not None or line.stamp is not None:
        return since_new_year(line.time) if line.time is not None else line.stamp
    clock = _CLOCK.search(line.raw, 0, _HEAD)
    return seconds_of_day(clock) if clock is not None else None


def plain(text: str) -> str:
    """Return a line without what a logger puts in front of its message, on one line."""
    for _ in range(_LAYERS):
        text = words("logger").sub("", text)
    text = _BLANKS.sub(" ", text).strip()
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1].rsplit(" ", 1)[0] + "…"
