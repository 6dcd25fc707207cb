"""Whether a job had stopped moving before somebody or something ended it: the time of its last call, or step, against that of the end."""

from __future__ import annotations

import numpy as np

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.job_logs.endings import ExternalEnd
from hangscope.ingest.job_logs.progress import Progress
from hangscope.model.events import Event, since_new_year
from hangscope.model.incident import Incident

ZONES = 900.0  # seconds: a printed clock may be in any time zone, and zones differ by quarters of an hour
HOUR = 3600.0  # seconds: no time zone is nearer to UTC, which dumps count in, and is not UTC itself
DAY = 26 * 3600.0  # seconds by which the clocks of two time zones may differ
LEAST = 10.0  # seconds without a call that are no standstill yet
USUAL = 5.0  # times the longest pause between calls that the job made before
MANY = 100.0  # times the pace of its steps or calls, in which a job that moves makes one
RECENT = 256  # calls of a rank whose pauses are looked at
DEFAULT = 600.0  # seconds that torch's watchdog waits before it calls a call of NCCL frozen
ASKED = 64  # ranks whose pauses are looked at


def stood_still(incident: Incident, statements: Statements, end: Event) -> bool | None:
    """Return whether the job had made no call for longer than it ever paused before, when `end` was printed; None: unknown.

    Where no dump tells of calls, the steps tell that were counted.
    """
    if isinstance(end, ExternalEnd) and end.moving is not None:
        return not end.moving
    stamp = end.in_the_year
    last, usual = _calls(incident)
    if stamp is None:
        return None
    if not last:
        return by_steps(statements, end)
    apart = stamp - since_new_year(last / 1e9)
    if abs(apart) > DAY:
        return None  # clocks of two different days
    gap = apart
    if abs(apart) > HOUR - LEAST:
        # Just below a whole number of zones the two clocks merely disagree.
        gap = (apart + LEAST) % ZONES - LEAST
    return gap > max(LEAST, USUAL * usual) or gap > max(LEAST / 2, MANY * usual)


def by_steps(statements: Statements, end: Event) -> bool | None:
    """Return whether the last step was counted long before the end, for the pace of the steps before it; None: unknown."""
    gap, pace = _since_a_step(statements, end)
    if gap is not None and gap < LEAST:
        return False
    return True if gap is not None and pace is not None and gap > max(DEFAULT, USUAL * pace) else None


def for_hours(statements: Statements, end: Event) -> tuple[float, float] | None:
    """Return for how many seconds no step was counted before the end, and the pace before that, where no pause is so long; else None.

    Clocks of two time zones are apart by as much, but for some seconds.
    """
    gap, pace = _since_a_step(statements, end)
    if gap is None or pace is None or gap < max(HOUR, MANY * pace):
        return None
    return (gap, pace) if gap % ZONES > min(max(LEAST, USUAL * pace), ZONES / 2) else None


def _since_a_step(statements: Statements, end: Event) -> tuple[float | None, float | None]:
    """Return how long before the end the last step was counted (s; None: unknown), and the pace of most ranks' steps (s; None: unknown)."""
    stamp = end.in_the_year
    counted = [e for e in statements.all(Progress) if e.step is not None and e.in_the_year is not None]
    gap = min(((stamp or 0.0) - (e.in_the_year or 0.0) for e in counted), default=-1.0)
    paces = [e.pace for e in counted if e.pace is not None]
    # Ranks go on together: the pace of most of them is that of all.
    pace = max(paces) if 2 * len(paces) > len(counted) else None
    return (gap if stamp is not None and 0 <= gap < DAY else None), pace


def _calls(incident: Incident) -> tuple[int, float]:
    """Return when the last call of any dump was enqueued (ns, 0: unknown) and the longest pause between two of a rank (s)."""
    last, usual = 0, 0.0
    for number, record in enumerate(incident.ranks.values()):
        made = [q.created for q in (*record.queues.values(), *record.p2p.values()) if len(q)]
        if not made:
            continue
        last = max(last, *(int(created.max()) for created in made))
        if number < ASKED:
            times = np.sort(np.concatenate([created[-RECENT:] for created in made]))
            times = times[times > 0]
            usual = max(usual, float(np.diff(times).max(initial=0)) / 1e9)
    return last, usual
