"""At which lines ranks were blocked, by stacks and tracebacks: who alone is in no call, and who is in another one than the rest.

Stacks of one moment show a moving job, too: in a call after the other its ranks pass each other by. That it stood still must be
told by something else before two calls that would meet are held against anybody.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.explain.finding import Absent, Finding, Unpaired
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.output import errors
from hangscope.explain.text.sides import stood, two_sides
from hangscope.explain.text.stop import PROOFS
from hangscope.incident import Frame, Incident
from hangscope.ingest.job_logs.endings import ExternalEnd
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import is_user, user_frame, user_frames

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
_LEAST = 4  # stacks of which one may be the odd one
#: calls that make a group, and wait for its members alone
_FORMING = frozenset(
    {"new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh", "split_group"}
)


def sites(incident: Incident, statements: Statements) -> Finding | None:
    """Compare the lines of user code at which the ranks were blocked."""
    found: dict[tuple[str | None, object], list[int]] = defaultdict(list)
    for rank, where in sorted(statements.whereabouts.items()):
        frames = tuple((f.file, f.line) for f in user_frames(where.stack) if is_user(f))
        if frames and where.inside:
            found[(where.op, frames)].append(rank)
    inside = tuple(sorted(r for ranks in found.values() for r in ranks))
    # Hosts of an NCCL job that wait for a result stand outside of any collective: few may be busy there, and not most.
    if 0 < len(statements.busy) <= len(inside):
        return Absent(tuple(sorted(statements.busy)), stood(inside[0], statements), waiting=inside)
    of_a_moment = not known_to_wait(statements)
    ops = {op for op, _ in found}
    if inside and len(inside) == len(incident.ranks) and ops <= _POINT_TO_POINT:
        if of_a_moment and ops == {"batch_isend_irecv"}:
            return None  # so stand the stages of any pipeline, most of the time
        # Stages of a pipeline stand at different lines by nature: which half is missing, their lines do not tell.
        told = tuple(errors(inside, statements))
        return Unpaired((), stood(inside[0], statements), tie=True, guess=of_a_moment, events=told)
    # At which of its sends and receives a rank stands tells nothing; that it is in a call of all may.
    paired = tuple(sorted(r for (op, _), ranks in found.items() if op in _POINT_TO_POINT for r in ranks))
    sides = [tuple(ranks) for (op, _), ranks in found.items() if op not in _POINT_TO_POINT]
    sides += [paired] if paired else []
    if len(sides) < 2 or (of_a_moment and len(ops) == 1):
        return None  # calls of one operation meet, whatever their lines: in them ranks pass each other by while they move
    if _in_groups_of_their_own(statements, sides):
        return None  # calls of different groups need not meet: who waits for whom, their members tell
    sides.sort(key=lambda r: (-len(r), r))
    kinds = {r: w.call for r, w in statements.whereabouts.items()}
    events = tuple(e for side in sides[:4] for e in statements.of(side[0], FailedStack, RankException)[:1])
    apart = two_sides(None, sides, kinds)
    if [kinds[side[0]].op in _FORMING for side in sides] == [True, *[False] * (len(sides) - 1)]:
        # Who is past the making of a group may have left it out, or was let through by those who now wait for each other.
        return replace(apart, culprits=(), tie=True, guess=True, events=events)
    alone = not apart.tie and sides[0] == paired
    # Of even sides the one off the step is odd, unless ranks that nobody saw stand with it.
    even = 2 * len(sides[0]) <= len(inside) < len(incident.ranks)
    return replace(apart, events=events, guess=alone or of_a_moment or even)


def _in_groups_of_their_own(statements: Statements, sides: Sequence[Sequence[int]]) -> bool:
    """Return whether the watchdogs of all sides tell of groups, and no two sides of one."""
    told = [
        {e.group_name for rank in side for e in statements.of(rank, WatchdogTimeout, WatchdogStatus)}
        - {None, ""}
        for side in sides
    ]
    return all(told) and len(set().union(*told)) == sum(map(len, told))


def known_to_wait(statements: Statements) -> bool:
    """Return whether a line tells of a timeout, an error or an end, and stacks are of more than a moment of a moving job."""
    return statements.of_trouble or bool(statements.all(*PROOFS, NoProgress, ExternalEnd))


def blocked_alone(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose stack is elsewhere, while all others wait at one line for their devices.

    Hosts of an NCCL job wait for their devices outside of any collective, at one line: that of the first result that they
    need. Whether it is such a wait torch's `synchronize` says itself; of another line it must be known that the job has
    stopped, or that all stood at the same lines when they were looked at before. Where nothing says that they wait, its stack
    must be in a library's code: it may compute, or wait for its own device.
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
