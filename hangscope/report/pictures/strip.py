"""The incident strip: when the job made its last progress, stalled, was noticed and ended, and what that cost.

Times are wall-clock nanoseconds. Dumps and logs may come from different clocks; the strip says so and does not order moments that it cannot place.
"""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.model.rankset import counted
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.schema.pictures import Moment, StripData
from hangscope.report.subject import Subject
from hangscope.report.words import cut, duration

_SECOND = 10**9  # logs count whole ones
_YEAR = 31_557_600 * _SECOND
_ORDER = ("progress", "stall", "watchdog", "dump", "end", "termination", "until")
_PREFIX = regex(r"^(?:\[[^\]]{1,90}\]:?\s*)+")  # who prints a line, and where in torch
_EARLIEST = 30 * _YEAR  # 2000: what lies before is no wall clock


def strip(subject: Subject) -> StripData | None:
    """Return the strip, or None where no time is known."""
    calls = (subject.first_open(r) for r in subject.graph.waiting if r not in subject.culprits)
    stalls = sorted(call.created for call in calls if call is not None and call.created > _EARLIEST)
    moments = [*_stall(subject, stalls), *_logged(subject, stalls), *_end(subject)]
    if not moments:
        return None
    moments.sort(key=lambda m: (_latest(int(m.at)), _ORDER.index(m.kind)))
    begins = [int(m.at) for kind in ("progress", "stall") for m in moments if m.kind == kind]
    # Only a moment after the stall shows how long it lasted: a watchdog timeout, or the end.
    later = [int(m.at) for m in moments if m.kind not in ("progress", "stall")]
    lasted = max(later) - begins[0] if begins and later else 0
    stalled = lasted / _SECOND if _SECOND <= lasted < _YEAR and not subject.over else None
    has_ended = quotes.has_ended(subject) or subject.verdict.until
    hosts = {record.host for record in subject.incident.ranks.values()}
    return StripData(
        moments=tuple(moments),
        stalled_s=stalled,
        rank_hours=stalled * subject.incident.world_size / 3600 if stalled is not None else None,
        one_clock=len(hosts) == 1 and None not in hosts,
        life="ended" if has_ended else "unknown",
    )


def _stall(subject: Subject, stalls: list[int]) -> Iterator[Moment]:
    """Yield the last progress and the stall; of a job that goes on, since when ranks waited."""
    since = subject.verdict.since
    local = not any(record.dump_file for record in subject.incident.ranks.values())
    if since is not None and _EARLIEST < since < min(stalls, default=since + 1):
        yield Moment("progress", str(since), "last progress", local=local)
    elif stalls and (last := subject.incident.last_completed()) > _EARLIEST:
        what = f"{'' if subject.over else 'last progress: '}the last completed collective was enqueued"
        yield Moment("progress", str(last), what, local=local)
    if stalls:
        ahead = " while others went on" if subject.incident.last_completed() > stalls[0] else ""
        spread = (stalls[-1] - stalls[0]) / _SECOND
        tail = f", the last {duration(spread)} later" if spread >= 1e-3 else ""
        what = f"first rank {'began to wait' if subject.over else 'blocked'}{ahead}{tail}"
        if len(stalls) == 1:
            what = f"the rank {'began to wait' if subject.over else 'is blocked'}"
        yield Moment("stall", str(stalls[0]), what, local=local)


def _logged(subject: Subject, stalls: list[int]) -> Iterator[Moment]:
    """Yield the first line of each kind that has a time, or can be placed after the stall; a culprit's first."""
    new_year = quotes.new_year(subject, stalls[0] / _SECOND) if stalls else None
    logged = {kind: quotes.of_kind(subject, kind) for kind in ("watchdog", "dump", "termination")}
    logged["end"] = [end for end in quotes.ends(subject) if end not in logged["termination"]]
    for kind, found in logged.items():
        if timed := [quote for quote in found if quote.at(new_year)]:
            first = min(timed, key=lambda q: (q.at(new_year), q.rank not in subject.culprits, q.source))
            text = cut(_PREFIX.sub("", first.text), 120)
            who = f"rank {first.rank}" if first.rank is not None else ""
            at_once = {q.rank for q in timed if q.at(new_year) <= first.at(new_year) + 1} - {first.rank, None}
            if kind == "end" and who and at_once:
                who += f" (and {counted(len(at_once), 'more rank')} within a second)"
            said = f"{who}: {text}" if who else text
            yield Moment(kind, _ns(first.at(new_year)), said, first.source, first.local)


def _end(subject: Subject) -> Iterator[Moment]:
    until, captured = subject.verdict.until, subject.incident.captured
    if captured > _EARLIEST / _SECOND:
        yield Moment("dump", _ns(captured), "stacks and dumps captured")
    if until is not None and until > _EARLIEST:
        ends = (*quotes.ends(subject), *quotes.of_kind(subject, "watchdog"))
        local = all(e.local for e in ends if e.time and abs(int(_ns(e.time)) - until) < 2 * 10**6)
        yield Moment("until", str(until), "end of the job", local=local)


def _ns(seconds: float) -> str:
    """Return seconds as nanoseconds, rounded to the milliseconds that logs show."""
    return str(round(seconds * 1000) * 10**6)


def _latest(at: int) -> int:
    """Return the latest time (ns) that a moment may have: a log with whole seconds gives only the second."""
    return at if at % _SECOND else at + _SECOND - 1
