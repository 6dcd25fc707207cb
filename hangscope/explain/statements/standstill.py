"""Whether a job had stopped moving before somebody or something ended it: the time of its last call, or step, against that of the end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hangscope.events import Event, since_new_year
from hangscope.incident import Incident
from hangscope.ingest.job_logs.progress import Progress

ZONES = 900.0  # seconds: a printed clock may be in any time zone, and zones differ by quarters of an hour
DAY = 26 * 3600.0  # seconds by which the clocks of two time zones may differ
LEAST = 10.0  # seconds without a call that are no standstill yet
USUAL = 5.0  # times the longest pause between calls that the job made before
RECENT = 256  # calls of a rank whose pauses are looked at
ASKED = 64  # ranks whose pauses are looked at
SILENCE = 600.0  # seconds without a line of progress that are no standstill yet: a watchdog's usual patience


def stood_still(incident: Incident, end: Event, progress: Sequence[Progress] = ()) -> bool | None:
    """Return whether the job had made no call, or printed no step, for longer than it ever paused before, when `end` was printed; None: unknown."""
    stamp = end.in_the_year
    last, usual = _calls(incident)
    paced = [e for e in progress if e.pace is not None and e.in_the_year is not None]
    if stamp is None or not (last or paced):
        return None
    apart = stamp - (since_new_year(last / 1e9) if last else max(e.in_the_year or 0.0 for e in paced))
    usual = usual if last else max(e.pace or 0.0 for e in paced)
    if abs(apart) > DAY:
        return None  # clocks of two different days
    gap = apart % ZONES
    # Just below a whole number of zones the two clocks merely disagree.
    still = max(LEAST, USUAL * usual) < gap < ZONES - LEAST
    return still if last or not still or apart > SILENCE else None


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
