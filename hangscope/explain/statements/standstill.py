"""Whether a job had stalled before it was terminated: the time of its last collective, or step, against that of the end."""

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
LEAST = 10.0  # seconds without a collective that are no stall yet
USUAL = 5.0  # times the longest earlier pause between collectives
DUE = 2.0  # times the pace of the lines of steps, within which the next one is not late
MANY = 100.0  # times the pace of its steps, or half of LEAST that many times longer than its pauses
RECENT = 256  # collectives of a rank whose pauses are examined
SOONEST = 2.0  # seconds before which nobody ends a job because it hangs
DEFAULT = 600.0  # seconds that torch's watchdog waits before it calls a collective of NCCL frozen
EXAMINED = 64  # ranks whose pauses are examined


def stood_still(incident: Incident, statements: Statements, end: Event) -> bool | None:
    """Return whether the job had issued no collective (or step) for longer than it ever paused before when `end` was printed; None: unknown."""
    if isinstance(end, ExternalEnd) and end.moving is not None:
        return not end.moving
    stamp, (last, usual) = end.in_the_year, _calls(incident)
    if stamp is None or not last:
        return by_steps(statements, end)
    gap = stamp - since_new_year(last / 1e9)
    if abs(gap) > DAY:
        return None  # clocks of two different days
    if abs(gap) > HOUR - LEAST:
        # Just below a whole number of zones the two clocks merely disagree.
        gap = (gap + LEAST) % ZONES - LEAST
    if gap > max(LEAST, USUAL * usual) or gap > max(LEAST / 2, MANY * usual):
        return True
    return None if gap > max(SOONEST, USUAL * usual) else False


def by_steps(statements: Statements, end: Event, least: float = DEFAULT) -> bool | None:
    """Return whether the last step was logged at least so long before the end (s), and long for the pace of the steps; None: unknown.

    Clocks of two time zones differ by a multiple of a quarter of an hour, but for some seconds: such a gap shows nothing.
    """
    stamp = end.in_the_year
    logged = [e for e in statements.all(Progress) if e.step is not None and e.in_the_year is not None]
    gap = min(((stamp or 0.0) - (e.in_the_year or 0.0) for e in logged), default=-1.0)
    paces = [e.pace for e in logged if e.pace is not None]
    if stamp is None or not 0 <= gap < DAY:
        return None
    if gap < LEAST:
        return False if not paces or gap <= max(1.0, DUE * max(paces)) else None
    if 2 * len(paces) <= len(logged):
        return None
    pace = max(paces)  # ranks go on together: the pace of most of them is that of all
    apart = gap < HOUR or gap % ZONES > min(max(LEAST, USUAL * pace), ZONES / 2)
    return True if gap > max(least, MANY * pace) and apart else None


def _calls(incident: Incident) -> tuple[int, float]:
    """Return when the last collective of any dump was enqueued (ns, 0: unknown) and the longest pause between two of a rank (s).

    Of the pauses the later half counts: before the first steps a job pauses once, to build and load.
    """
    last, usual = 0, 0.0
    for number, record in enumerate(incident.ranks.values()):
        created = [q.created for q in (*record.queues.values(), *record.p2p.values()) if len(q)]
        last = max(last, *(int(times.max()) for times in created), 0)
        if created and number < EXAMINED:
            times = np.sort(np.concatenate([times[-RECENT:] for times in created]))
            pauses = np.diff(times[times > 0])
            usual = max(usual, float(pauses[len(pauses) // 2 :].max(initial=0)) / 1e9)
    return last, usual
