"""Who alone is blocked where no other rank stands, while all others wait for their devices.

Hosts of an NCCL job wait for their devices outside of any collective, at one line: that of the first result that they need.
Whether it is such a wait torch's `synchronize` says itself; of another line it must be known that the job has stopped, or that
all stood at the same lines when they were looked at before.
"""

from __future__ import annotations

from collections import Counter

from hangscope.explain.finding import Absent
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.stop import PROOFS
from hangscope.incident import Frame, Incident
from hangscope.knowledge.callsite import is_user, user_frame

_LEAST = 4  # stacks of which one may be the odd one


def blocked_alone(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose stack is elsewhere, while all others wait at one line for their devices.

    Where nothing says that they wait, its stack must be in a library's code: it may compute, or wait for its own device.
    """
    places = {
        r: w.stack
        for r, w in statements.whereabouts.items()
        if w.kind == "stack" and w.stack and not w.inside
    }
    if len(places) < _LEAST or places.keys() != incident.ranks.keys():
        return None
    ((place, _),) = Counter(stack[0] for stack in places.values()).most_common(1)
    odd = tuple(rank for rank, stack in places.items() if stack[0] != place)
    if len(odd) != 1 or not _of_the_program(place):
        return None
    own, end = places[odd[0]], statements.external
    # torch's own wait for all that a device, a stream or an event has to do
    waits = place.name == "synchronize" and not is_user(place)
    stopped = bool(statements.all(*PROOFS)) or (
        end is not None and stood_still(incident, statements, end) is True
    )
    still = all(record.unchanged_stacks for record in incident.ranks.values())
    if not (waits or stopped or still) or user_frame(own) is None:
        return None
    if _of_the_program(own[0]) and not (waits and is_user(own[0])):
        return None  # it waits for its device at another line, or computes
    return Absent(odd, guess=not stopped)


def _of_the_program(frame: Frame) -> bool:
    return is_user(frame) or "torch/" in frame.file.replace("\\", "/")
