"""How far and how fast the lines of a short text count: from where to where, since when slower, what no longer followed, and what goes on evenly.

    [2026-04-12 09:32:31 TP0] Prefill batch, #new-token: 8192, token usage: 0.41, #queue-req: 37,
    [2026-04-12 09:32:52 TP0] Prefill batch, #new-token: 8192, token usage: 0.42, #queue-req: 39,
    [2026-04-12 09:33:13 TP0] Prefill batch, #new-token: 8192, token usage: 0.43, #queue-req: 39,

Whoever prints lines at even intervals with numbers that grow still works at the last of them, whatever they count. A line that repeats
alike but for its clock, as watchers and pollers print it, shows nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from hangscope.ingest.job_logs.durations import lasted
from hangscope.ingest.lines.layers import seconds_of_day
from hangscope.ingest.lines.prefixes import quote
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex

_SHOWN = 160
_TURNS_LOOKED_AT = 400  # lines
_TURNS = 5
_DIGITS = regex(r"\d[\d.,:]*")
_COUNT = regex(
    r"(?i)\b(?:global[_ ]?)?(?:step|iter(?:ation)?|batch)s?\b[ :=#\[(]{1,16}(\d{1,12})\b|\b(\d{1,12})/\d{1,12}\b(?= \[\d)|\[ {0,8}(\d{1,12})/\d{2,12}(?: \(\d{1,3}%\))?\]"
)
_BARS = regex(r"[^\x20-\x7e]{1,200}|\s{2,200}")
#: How long a step takes, or how many there are in a second.
_RATE = regex(
    r"(?i)(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|sec)/(?:it|iter|iteration|step|batch)\b|\b(?:time|elapsed)\b[^:=]{0,40}\((ms|s)\)[:= ]{1,3}(\d{1,9}(?:\.\d{1,6})?)"
    r"|(\d{1,9}(?:\.\d{1,6})?) ?(?:it|iter|step|sample|example|tok(?:en)?)s?/s(?:ec)?\b"
)
#: how long a step took, in a column of its own
_TOOK = regex(r"(?<![\w.:])(\d{1,9}(?:\.\d{1,6})?) ?(ms|s|secs?|seconds)(?![\w/])")
#: a timer by its name: `Data (t): 27.318`, `data_time=0.004`
_LABELED = regex(
    r"(?i)(?<![\w.])((?:data|load|fetch|wait|batch|step|iter|time|forward|backward|dt)[a-z_]{0,16}(?: ?\([a-z]{1,3}\)| time)?) {0,2}[:= ] {0,2}(\d{1,9}\.\d{1,6})(?![\w.%]|/)"
)
_OF_INPUT = regex(r"(?i)data|load|fetch")
_LEAST_TIME = 0.001  # s
_SLOWER, _RATES = 2.0, 4
_FEW = 3  # times as many steps that are not slow
_FASTER, _LONGER, _PAUSE = 4.0, 8.0, 60  # times; times the usual interval; s
#: `    forward-backward .....: (812.11, 4120.50)`, the least and the most of all ranks in ms (megatron/core/timers.py)
_TIMER = regex(r"^\s{1,8}([\w-]{3,60}) \.{2,80}: \((\d{1,9}\.\d{1,4}), (\d{1,9}\.\d{1,4})\)")
_WORTH = 100  # ms
# a progress bar has `[elapsed<remaining`
_CLOCK = regex(r"(?<!<)(?:\b|(?<=\dT))(\d\d):(\d\d):(\d\d)\b(?:[.,]\d{1,9})?(?!<)")
# of a table of processes, whose times are how long they ran
_COLUMNS = regex(r"^\s{0,10}\d{1,9} {1,10}\d{1,9} ")
_NO_STAMP = regex(r"[a-z]{3}|=\s{0,3}$")
_DATE = regex(r"\b\d{4}[-/]\d\d[-/]\d\d(?:T(?= )|\b)|\b\d\d[-/]\d\d[-/]\d{4}\b")
_DATED = regex(rf"(?:{_DATE.pattern})[ T_-]$")
_NUMBER = regex(r"\d{1,15}(?:\.\d{1,9})?")
_DRAWN = regex(r"[^\x20-\x7e]{1,200}|[#|=>.-]{3,200}|\s{2,200}")
_LEAST, _EVEN, _DAY = 3, 1.6, 86400
_HEAD = 100  # characters of a line within which its clock is
_LABEL = 24  # characters before a number


#: (what counts, the line)
Counted = Sequence[tuple[re.Match[str], str]]


def counted(lines: Sequence[tuple[int, str]]) -> Counted:
    """Return the lines that count steps."""
    return [(match, text) for _, text in lines if (match := _COUNT.search(text))]


def _of_one_form(counted: Counted) -> Counted:
    """Return those that are alike but for their numbers: the last one and the ones before it."""
    form = form_of(counted[-1][1]) if counted else ""
    return [row for row in counted if form_of(row[1]) == form]


def broken(lines: Sequence[str]) -> str:
    """Return which line no longer followed the last one, of two that took turns at least twice; empty where none did."""
    found = [text for text in lines if not words("launchers_line").match(text.lstrip())][-_TURNS_LOOKED_AT:]
    forms = [_DIGITS.sub("#", text).strip() for text in found]
    runs = [form for before, form in pairwise(["", *forms]) if form != before]
    if len(runs) < _TURNS or "#" not in runs[-1] or forms[-2:] != [runs[-1]] * 2:
        return ""
    followers = [after for form, after in pairwise(runs) if form == runs[-1]]
    if len(followers) < 2 or len(set(followers)) != 1:
        return ""
    last = quote(found[-1], _SHOWN)
    return f"'{followers[0][:80]}' came {len(followers)} times after '{runs[-1][:80]}', and not after the last one ({last[:80]})"


def moves(counted: Counted, lines: Sequence[tuple[int, str]]) -> str:
    """Return `911/5000 to 912/5000` where the last line counts and earlier ones of its form count less; empty where they do not."""
    if not counted or counted[-1][1] != lines[-1][1]:
        return ""
    *before, last = (match for match, _ in _of_one_form(counted))
    first = next((match for match in before if _number(match) < _number(last)), None)
    return " ".join(f"{first[0]} to {last[0]}".split()) if first is not None else ""


def pace(counted: Counted) -> str:
    """Return since which count steps take at least twice as long, as `4.9 times slower since step 120: 9.77 s, then 48.37 s per step`."""
    found = _rates(counted)
    if len(found) < _RATES or not (before := min(seconds for _, seconds in found[:2])):
        return ""
    after = found[-1][1]
    if after < _SLOWER * before:
        return ""
    if all(a < b for (_, a), (_, b) in pairwise(found)):
        first, last = (" ".join(found[at][0].split()) for at in (0, -1))
        return f"a step takes longer each time: {found[0][1]:.3g} s at {first}, {after:.3g} s at {last}"
    since = next(label for label, seconds in found if seconds > (before * after) ** 0.5)
    return f"{after / before:.2g} times slower since {' '.join(since.split())}: {before:.3g} s, then {after:.3g} s per step"


def went_on(counted: Counted) -> str:
    """Return `2340/5004 to 2400/5004` where the last lines that count are of one form and count up, wherever in the text; empty where they do not."""
    alike = [match for match, _ in _of_one_form(counted)]
    grows = len(alike) >= _LEAST and all(_number(a) < _number(b) for a, b in pairwise(alike))
    return " ".join(f"{alike[0][0]} to {alike[-1][0]}".split()) if grows else ""


def slow_steps(counted: Counted) -> str:
    """Return which steps took far longer than those between them, by a column of seconds: `step 3000 and step 4000 took 213 s, the others 0.9 s`.

    Of several columns the one that differs most, by its name: `Data (t) is 26.8 to 29.4 s at every 8th step and 0.0045 s at the others`.
    """
    alike = [(" ".join(m[0].split()), text[m.end() :]) for m, text in _of_one_form(counted)]
    columns: dict[str, list[float]] = defaultdict(list)
    for _, text in alike:
        if took := _TOOK.search(text):
            columns[""].append(float(took[1]) / (1000 if took[2] == "ms" else 1))
        for timer in _LABELED.finditer(text):
            columns[timer[1]].append(float(timer[2]))
    whole = [(name, values) for name, values in columns.items() if len(values) == len(alike) >= _RATES]
    name, values = max(whole, key=lambda c: max(c[1]) / max(median(c[1]), _LEAST_TIME), default=("", [0.0]))
    usual = median(values)
    slow = [n for n, seconds in enumerate(values) if seconds > max(1.0, _LONGER * usual)]
    if not usual or not slow or _FEW * len(slow) > 2 * len(values) or slow[-1] == len(values) - 1:
        return ""
    times = [values[n] for n in slow]
    if not name:
        labels = [alike[n][0] for n in slow]
        labels[_FEW:] = [f"{len(labels) - _FEW} more"] if len(labels) > _FEW else []
        named = " and ".join(filter(None, (", ".join(labels[:-1]), labels[-1])))
        return f"{named} took {max(times):.0f} s, the steps between {usual:.2g} s"
    gaps = {b - a for a, b in pairwise(slow)}
    at = f"every {gaps.pop()}th step" if len(gaps) == 1 else f"{len(slow)} of {len(values)} steps"
    name = f"'{name}', the wait for input," if _OF_INPUT.match(name) else f"'{name}'"
    return f"{name} is {min(times):.3g} to {max(times):.3g} s at {at} and {usual:.2g} s at the others"


def slow_stretch(counted: Counted) -> str:
    """Return where steps were slow before they went on at their pace, as `a step took 64.3 s at first and takes 0.64 s now`; empty where none were."""
    rates = [seconds for _, seconds in _rates(counted) if seconds]
    if len(rates) >= _LEAST and rates[0] > _FASTER * max(rates[-2:]):
        first = f"{rates[0]:.0f}" if rates[0] >= 1000 else f"{rates[0]:.3g}"
        return f"a step took {first} s at first and takes {rates[-1]:.3g} s at the end"
    timed = [
        (seconds_of_day(clock), clock[0][:8], count)
        for count, text in _of_one_form(counted)
        if (clock := _CLOCK.search(text))
    ]
    stretches = [((b[0] - a[0]) % _DAY, _number(b[2]) - _number(a[2]), a, b) for a, b in pairwise(timed)]
    paces = [seconds / steps for seconds, steps, _, _ in stretches if steps > 0]
    if len(paces) < _RATES:
        return ""
    slow = [s for s in stretches if s[0] > _PAUSE and s[1] > 0 and s[0] > _LONGER * s[1] * median(paces)]
    if not slow or paces[-1] > _FASTER * median(paces):
        return ""
    seconds, _, before, after = max(slow, key=lambda s: s[0])
    often = f", one of {len(slow)} such pauses" if len(slow) > 1 else ""
    return f"{seconds:.0f} s passed before {' '.join(after[2][0].split())} ({before[1]} to {after[1]}{often}), and then the steps continued"


def _rates(counted: Counted) -> list[tuple[str, float]]:
    """Return (what counts, the seconds of a step) of the lines of the loop whose last line has both."""
    rated = _of_one_form([row for row in counted if _RATE.search(row[1])])
    return [(count[0], _seconds(rate)) for count, text in rated if (rate := _RATE.search(text))]


def spread(lines: Sequence[tuple[int, str]]) -> str:
    """Return the timer that differs most between ranks, of a list as Megatron-LM prints it, where the slowest takes at least twice as long."""
    found = [(float(m[3]) - float(m[2]), m) for _, text in lines if (m := _TIMER.match(text))]
    more, timer = max(found, key=lambda item: item[0], default=(0.0, None))
    if timer is None or more < _WORTH or float(timer[3]) < _SLOWER * float(timer[2]):
        return ""
    return f"uneven across ranks: {timer[1]} takes {float(timer[2]):.0f} ms on the fastest and {float(timer[3]):.0f} ms on the slowest"


def steady(lines: Sequence[tuple[int, str]]) -> tuple[str, int]:
    """Return (`step 117 to 120, one line every 41 s until 15:03:32`, the number of the last one) of the form that goes on longest; ("", 0) if none does."""
    forms: dict[str, list[tuple[int, str, re.Match[str]]]] = defaultdict(list)
    for number, text in lines:
        if (clock := _CLOCK.search(text)) and not words("watches").search(text):
            rest = " ".join(
                _DRAWN.sub(
                    " ", _DATE.sub(" ", text.replace(clock[0] + "Z", " ").replace(clock[0], " "))
                ).split()
            )
            forms[_NUMBER.sub("#", rest)].append((number, rest, clock))
    found = [even for those in forms.values() if (even := _even(those))]
    return max(found, key=lambda even: even[1], default=("", 0))


def silence(lines: Sequence[tuple[int, str]]) -> tuple[str, int, int]:
    """Return (`nothing was printed for 197 s, from 21:14:31 to 21:17:48`, its seconds, the number of the line before it) of the longest pause.

    It is far longer than the others; ("", 0, 0) where none is. Where lines without a time are in it, nothing is said of it.
    """
    clocks = [(number, clock) for number, text in lines if (clock := _stamp(text))]
    spans = [
        ((seconds_of_day(b) - seconds_of_day(a)) % _DAY, a, b, at) for (at, a), (_, b) in pairwise(clocks)
    ]
    ordered = [span for span in spans if span[0] < _DAY / 2]  # lines of two writers may cross
    if len(ordered) < _RATES:
        return "", 0, 0
    longest, before, after, number = max(ordered, key=lambda span: span[0])
    others = sorted(span[0] for span in ordered)[:-1]
    if longest < _PAUSE or longest < _FASTER * max(others[-1], 1):
        return "", 0, 0
    until = next(n for (n, clock), (m, _) in pairwise([*reversed(clocks)]) if m == number and clock is after)
    untimed = any(number < n < until and text.strip() for n, text in lines)
    said = f"nothing was printed for {longest} s, from {before[0][:8]} to {after[0][:8]}"
    return "" if untimed else said, longest, number


def _stamp(text: str) -> re.Match[str] | None:
    """Return the time of day at which a line was printed; None where a time is part of what it says, as `done, wall 09:41:12`."""
    clock = _CLOCK.search(text[:_HEAD])
    before = text[: clock.start()] if clock else ""
    if clock is not None and _DATED.search(before):
        return clock
    if (
        clock is None
        or seconds_of_day(clock) >= _DAY
        or words("a_length").search(before)
        or _COLUMNS.match(before)
    ):
        return None
    return None if _NO_STAMP.search(words("before_a_time").sub(" ", before)) else clock


def longest(lines: Sequence[tuple[int, str]]) -> tuple[float, str]:
    """Return (seconds, line) of the longest work that a line reports as done: `checkpoint written in 1293.4 s`; (0, "") where none does."""
    found = [(seconds, text) for _, text in lines if (seconds := lasted(text))]
    return max(found, default=(0.0, ""))


def _even(those: Sequence[tuple[int, str, re.Match[str]]]) -> tuple[str, int] | None:
    """Return how lines of one form go on, None where their intervals are uneven or no number grows."""
    moments = [seconds_of_day(clock) for _, _, clock in those]
    # The log of another process begins with an earlier moment.
    back = (n for n, (a, b) in enumerate(pairwise(moments), 1) if (b - a) % _DAY > _DAY / 2)
    start = max(back, default=0)
    those, moments = those[start:], moments[start:]
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
    return f"{grown}, one line every {median(spans):.0f} s until {those[-1][2][0][:8]}", those[-1][0]


def _seconds(rate: re.Match[str]) -> float:
    number, unit = float(rate[1] or rate[4] or rate[5]), (rate[2] or rate[3] or "").lower()
    if rate[5]:
        return 1 / number if number else 0.0
    return number / 1000 if unit == "ms" else number


def form_of(text: str) -> str:
    """Return a line without its numbers and bars."""
    return " ".join(_BARS.sub(" ", _DIGITS.sub("#", text)).split())


def _number(match: re.Match[str]) -> int:
    return int(match[1] or match[2] or match[3])
