"""Lines that a program prints at even intervals with numbers that grow: whoever prints them still works at the last of them.

    [2026-04-12 09:32:31 TP0] Prefill batch, #new-token: 8192, token usage: 0.41, #queue-req: 37,
    [2026-04-12 09:32:52 TP0] Prefill batch, #new-token: 8192, token usage: 0.42, #queue-req: 39,
    [2026-04-12 09:33:13 TP0] Prefill batch, #new-token: 8192, token usage: 0.43, #queue-req: 39,

What the numbers count does not matter. A line that repeats alike but for its clock, as watchers and pollers print it, shows nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from hangscope.ingest.lines.words import words
from hangscope.model.regex import regex

_CLOCK = regex(r"\b(\d\d):(\d\d):(\d\d)\b(?:[.,]\d{1,9})?")
_DATE = regex(r"\b\d{4}[-/]\d\d[-/]\d\d\b|\b\d\d[-/]\d\d[-/]\d{4}\b")
_NUMBER = regex(r"\d{1,15}(?:\.\d{1,9})?")
_BARS = regex(r"[^\x20-\x7e]{1,200}|[#|=>.-]{3,200}|\s{2,200}")
_LEAST, _EVEN, _DAY = 3, 1.6, 86400
_LABEL = 24  # characters before a number


def steady(lines: Sequence[tuple[int, str]]) -> tuple[str, int]:
    """Return (`step 117 to 120, one line every 41 s until 15:03:32`, the number of the last one) of the form that goes on longest; ("", 0) if none does."""
    forms: dict[str, list[tuple[int, str, str]]] = defaultdict(list)
    for number, text in lines:
        if (clock := _CLOCK.search(text)) and not words("watches").search(text):
            rest = " ".join(_BARS.sub(" ", _DATE.sub(" ", text.replace(clock[0], " "))).split())
            forms[_NUMBER.sub("#", rest)].append((number, rest, clock[0]))
    told = [found for those in forms.values() if (found := _even(those))]
    return max(told, key=lambda found: found[1], default=("", 0))


def _even(those: Sequence[tuple[int, str, str]]) -> tuple[str, int] | None:
    """Return how lines of one form go on, None where their intervals are uneven or no number grows."""
    moments = [sum(int(n) * u for n, u in zip(_parts(c), (3600, 60, 1), strict=True)) for _, _, c in those]
    spans = [(b - a) % _DAY for a, b in pairwise(moments)]
    if len(those) < _LEAST or not min(spans) or max(spans) > _EVEN * median(spans):
        return None
    columns = zip(*([float(n) for n in _NUMBER.findall(rest)] for _, rest, _ in those), strict=True)
    grows = (at for at, column in enumerate(columns) if all(a < b for a, b in pairwise(column)))
    if (at := next(grows, None)) is None:
        return None
    numbers = [[*_NUMBER.finditer(rest)][at] for _, rest, _ in those]
    label = those[0][1][: numbers[0].start()].strip(" (#=[]").rpartition("|")[2].rpartition(", ")[2][-_LABEL:]
    grown = f"{label.strip(' ]')} {numbers[0][0]} to {numbers[-1][0]}".strip()
    return f"{grown}, one line every {median(spans):.0f} s until {those[-1][2][:8]}", those[-1][0]


def _parts(clock: str) -> Sequence[str]:
    return clock[:8].split(":")
