"""Who alone is blocked where no other rank stands, while all others wait for their devices.

Hosts of an NCCL job wait for their devices outside of any collective, at one line: that of the first result that they need.
Whether it is such a wait torch's `synchronize` says itself; of another line it must be known that the job has stopped, or that
all stood at the same lines when they were looked at before.
"""

from __future__ import annotations

from collections import Counter
from itertools import takewhile

from hangscope.explain.finding import Absent, StuckCall
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.stop import PROOFS
from hangscope.incident import Frame, Incident, Stack
from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.regex import regex

_READS_A_RESULT = "_maybe_opt_step"  # of torch/amp/grad_scaler.py, which asks each device whether it found an infinite number
#: of CUDA's driver and runtime, and of HIP's
_SYNCHRONIZES = regex(r"^(?:cu|cuda|hip)(?:Stream|Device|Event|Ctx)Synchronize(?:_v\d)?$")
_HOST_WAITS = regex(
    r"futex|sem_(?:timed)?wait|sem_clockwait|poll|epoll|select|read|recv|nanosleep|wait4|flock|fsync"
)
_WORKS = regex(r"(?i)autograd|c10d|nccl|rccl|gloo|cuda|hip|Kernel")
_LEAST = 4  # stacks of which one may be the odd one


def blocked_alone(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose stack is elsewhere, while all others wait at one line for their devices.

    Where nothing says that they wait, its stack must be in a library's code: it may compute, or wait for its own device.
    """
    stood = {r: w.stack for r, w in statements.whereabouts.items() if w.kind == "stack" and w.stack}
    if len(stood) < _LEAST or set(stood) != set(incident.ranks):
        return None
    if any(where.inside for where in statements.whereabouts.values()):
        return None
    ((place, times),) = Counter(stack[0] for stack in stood.values()).most_common(1)
    odd = tuple(rank for rank, stack in stood.items() if not _waits_for_its_device(stack))
    waits, stopped = len(odd) == 1, _stopped(incident, statements)
    if not waits and times == len(stood) - 1 and _of_the_program(place):
        odd = tuple(rank for rank, stack in stood.items() if stack[0] != place)
    still = all(record.unchanged_stacks for record in incident.ranks.values())
    if len(odd) != 1 or not (waits or stopped or still):
        return None
    own = stood[odd[0]]
    if user_frame(own) is None and not (waits and _blocked_natively(own)):
        return None
    if _of_the_program(own[0]) and not (waits and is_user(own[0])):
        return None  # it waits for its device at another line, or computes
    others = tuple(sorted(set(stood) - set(odd)))
    return Absent(
        odd, StuckCall(rank=others[0]), waiting=others, reached=frozenset(others), guess=not stopped
    )


def _stopped(incident: Incident, statements: Statements) -> bool:
    """Return whether a line proves that the job stood still, or its last step was long over when it was ended."""
    end = statements.external
    return bool(statements.all(*PROOFS)) or (
        end is not None and stood_still(incident, statements, end) is True
    )


def _waits_for_its_device(stack: Stack) -> bool:
    """Return whether a stack ends in a wait for all that a device, a stream or an event has to do: torch's own, or the driver's."""
    place = stack[0]
    if is_user(place):
        return False
    if place.name in ("synchronize", _READS_A_RESULT):
        return _of_the_program(place)
    return any(_SYNCHRONIZES.match(frame.name) for frame in takewhile(_is_native, stack))


def _blocked_natively(stack: Stack) -> bool:
    """Return whether a native stack ends in a wait of the host's, which no backward pass and no communication makes."""
    return bool(_HOST_WAITS.search(stack[0].name)) and not any(_WORKS.search(frame.name) for frame in stack)


def _is_native(frame: Frame) -> bool:
    return not frame.file.endswith(".py")


def _of_the_program(frame: Frame) -> bool:
    return is_user(frame) or "torch/" in frame.file.replace("\\", "/")
