"""The incident strip: when the job made its last progress, stalled, was noticed and ended, and what that cost.

Times are wall-clock nanoseconds. Dumps and logs may come from different clocks; the strip says so and does not order moments that it cannot place.
"""

from __future__ import annotations

from hangscope.model.incident import State
from hangscope.model.regex import regex
from hangscope.report import quotes
from hangscope.report.schema.pictures import Moment, StripData
from hangscope.report.subject import Subject
from hangscope.report.words import cut, duration

_SECOND = 10**9  # logs count whole ones
_YEAR = 31_557_600 * 10**9
_ORDER = ("progress", "stall", "watchdog", "dump", "end", "termination", "until")
_PREFIX = regex(r"^(?:\[[^\]]{1,90}\]:?\s*)+")  # who prints a line, and where in torch
_ASKED = 64  # ranks whose collectives are looked through
_EARLIEST = 30 * _YEAR  # 2000: what lies before is no wall clock


def strip(subject: Subject) -> StripData | None:
    """Return the strip, or None where no time is known."""
    verdict = subject.verdict
    moments: list[Moment] = []
    stalls = sorted(
        call.created
        for rank in subject.graph.waiting
        if rank not in subject.culprits
        and (call := subject.first_open(rank)) is not None
        and call.created > _EARLIEST
    )
    since = verdict.since if verdict is not None else None
    if since is not None and since > _EARLIEST and since < min(stalls, default=since + 1):
        moments.append(Moment("progress", str(since), "last progress"))
    elif stalls and (last := _last_completed(subject, stalls[0])):
        moments.append(
            Moment("progress", str(last), "last progress: the last completed collective was enqueued")
        )
    year = quotes.new_year(subject, stalls[0] / 1e9) if stalls else None
    if stalls:
        spread = (stalls[-1] - stalls[0]) / 1e9
        tail = f", the last {duration(spread)} later" if len(stalls) > 1 and spread >= 1e-3 else ""
        moments.append(
            Moment(
                "stall",
                str(stalls[0]),
                f"first rank blocked{tail}" if len(stalls) > 1 else "the rank is blocked",
            )
        )
    outside = quotes.terminations(subject)
    deaths = [end for end in quotes.ends(subject) if end not in outside]
    for kind, found in (
        ("watchdog", quotes.watchdogs(subject)),
        ("dump", quotes.dump_signals(subject)),
        ("end", deaths),
        ("termination", outside),
    ):
        placed = (
            (t.time or (year + t.stamp if year is not None and t.stamp is not None else 0.0), t)
            for t in found
        )
        timed = sorted(
            (item for item in placed if item[0]),
            key=lambda item: (item[0], item[1].rank not in subject.culprits, item[1].source),
        )
        if timed:
            at, first = timed[0]
            who = f"rank {first.rank}: " if first.rank is not None else ""
            text = cut(_PREFIX.sub("", first.text), 120)
            moments.append(Moment(kind, str(round(at * 1000) * 10**6), who + text, first.source))
    if subject.incident.captured > _EARLIEST / _SECOND:
        moments.append(
            Moment("dump", str(round(subject.incident.captured * 1000) * 10**6), "stacks and dumps captured")
        )
    if verdict is not None and verdict.until is not None and verdict.until > _EARLIEST:
        moments.append(Moment("until", str(verdict.until), "end of the job"))
    if not moments:
        return None
    moments.sort(key=lambda m: (_latest(int(m.at)), _ORDER.index(m.kind)))
    begin = next((int(m.at) for m in moments if m.kind in ("progress", "stall")), None)
    # Only a moment after the stall shows how long it lasted: a watchdog timeout, or the end.
    finish = max((int(m.at) for m in moments if m.kind not in ("progress", "stall")), default=None)
    stalled = (
        (finish - begin) / 1e9
        if begin is not None and finish is not None and _SECOND <= finish - begin < _YEAR
        else None
    )
    return StripData(
        moments=tuple(moments),
        stalled_s=stalled,
        rank_hours=stalled * subject.incident.world_size / 3600 if stalled is not None else None,
        one_clock=subject.one_clock,
        life="ended" if quotes.has_ended(subject) or (verdict is not None and verdict.until) else "unknown",
    )


def _latest(at: int) -> int:
    """Return the latest time (ns) that a moment may have: a log with whole seconds gives only the second."""
    return at if at % _SECOND else at + _SECOND - 1


def _last_completed(subject: Subject, before: int) -> int:
    """Return when (ns) the last collective was enqueued that completed before a moment, 0 where none is known."""
    found = 0
    for rank in subject.graph.waiting[:_ASKED]:
        for queue in subject.incident.ranks[rank].queues.values():
            done = queue.created[(queue.state == State.DONE) & (queue.created < before)]
            found = max(found, int(done.max()) if len(done) else 0)
    return found if found > _EARLIEST else 0
