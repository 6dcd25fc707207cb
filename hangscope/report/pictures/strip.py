"""The incident strip: when the job made its last progress, stalled, was noticed and ended, and what that cost.

Times are wall-clock nanoseconds. Dumps and logs may come from different clocks; the strip says so and orders nothing by them
that it could not place.
"""

from __future__ import annotations

from hangscope.rankset import counted
from hangscope.report import told
from hangscope.report.schema.pictures import Moment, StripData
from hangscope.report.subject import Subject
from hangscope.report.words import cut, duration

_SECOND = 10**9  # logs count whole ones
_YEAR = 31_557_600 * 10**9
_EARLIEST = 30 * _YEAR  # 2000: what lies before is no wall clock


def strip(subject: Subject) -> StripData | None:
    """Return the strip, or None where no time is known."""
    verdict = subject.verdict
    moments: list[Moment] = []
    if verdict is not None and verdict.since is not None and verdict.since > _EARLIEST:
        moments.append(Moment("progress", str(verdict.since), "last progress"))
    stalls = sorted(
        call.created
        for rank in subject.graph.waiting
        if (call := subject.first_open(rank)) is not None and call.created > _EARLIEST
    )
    if stalls:
        spread = (stalls[-1] - stalls[0]) / 1e9
        tail = f", the last {duration(spread)} later" if len(stalls) > 1 and spread >= 1e-3 else ""
        moments.append(
            Moment(
                "stall",
                str(stalls[0]),
                f"first of {counted(len(stalls), 'rank')} blocked{tail}"
                if len(stalls) > 1
                else "the rank is blocked",
            )
        )
    for kind, found in (("watchdog", told.watchdogs(subject)), ("end", told.ends(subject))):
        timed = sorted((t for t in found if t.time), key=lambda t: (t.time or 0, t.source))
        if timed:
            first = timed[0]
            who = f"rank {first.rank}: " if first.rank is not None else ""
            moments.append(
                Moment(kind, str(int((first.time or 0) * 1e9)), who + cut(first.text, 120), first.source)
            )
    if verdict is not None and verdict.until is not None and verdict.until > _EARLIEST:
        moments.append(Moment("until", str(verdict.until), "end of the job"))
    if not moments:
        return None
    moments.sort(key=lambda m: (int(m.at), m.kind))
    begin = next((int(m.at) for m in moments if m.kind in ("progress", "stall")), None)
    # Only what comes behind the stall tells how long it stood: a watchdog, or the end.
    finish = max((int(m.at) for m in moments if m.kind not in ("progress", "stall")), default=None)
    stood = (
        (finish - begin) / 1e9
        if begin is not None and finish is not None and _SECOND <= finish - begin < _YEAR
        else None
    )
    return StripData(
        moments=tuple(moments),
        stood_s=stood,
        rank_hours=stood * subject.incident.world_size / 3600 if stood is not None else None,
        one_clock=subject.one_clock,
        life="ended" if told.has_ended(subject) or (verdict is not None and verdict.until) else "unknown",
    )
