"""When a job made its last progress, by what its recorders kept."""

from __future__ import annotations

from hangscope.model.incident import Incident, State


def last_completed(incident: Incident) -> int:
    """Return when (ns) the last call of any rank that completed was enqueued, or completed where that time is known; 0 where neither is."""
    found = 0
    for record in incident.ranks.values():
        for queue in (*record.queues.values(), *record.p2p.values()):
            done = queue.state == State.DONE
            columns = [queue.created] if queue.completed is None else [queue.created, queue.completed]
            found = max(found, *(int(column[done].max(initial=0)) for column in columns))
    return found
