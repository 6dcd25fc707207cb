"""At which lines ranks were blocked, by stacks and tracebacks: who alone is in no call, and who is in another one than the rest.

Stacks of one moment show a moving job, too: in a call after the other its ranks pass each other by. That it stood still must be
told by something else before two calls that would meet are held against anybody.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.explain.finding import Absent, Finding, Unpaired
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.output import errors
from hangscope.explain.text.sides import stood, two_sides
from hangscope.explain.text.stop import PROOFS
from hangscope.ingest.job_logs.endings import ExternalEnd
from hangscope.ingest.job_logs.faults import NoProgress
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import is_user, user_frames
from hangscope.model.incident import Incident

_POINT_TO_POINT = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
#: calls that make a group, and wait for its members alone
_FORMING = frozenset(
    {"new_group", "new_subgroups", "new_subgroups_by_enumeration", "init_device_mesh", "split_group"}
)


def sites(incident: Incident, statements: Statements) -> Finding | None:
    """Compare the lines of user code at which the ranks were blocked."""
    found: dict[tuple[str | None, object], list[int]] = defaultdict(list)
    for rank, where in sorted(statements.whereabouts.items()):
        users = tuple((f.file, f.line) for f in user_frames(where.stack) if is_user(f))
        frames = users or (tuple((f.file, f.line) for f in where.stack) if where.op else ())
        if frames and where.inside:
            found[(where.op, frames)].append(rank)
    inside = tuple(sorted(r for ranks in found.values() for r in ranks))
    # Hosts of an NCCL job that wait for a result stand outside of any collective: few may be busy there, and not most.
    of_a_moment, ops = not known_to_wait(statements), {op for op, _ in found}
    if 0 < len(statements.busy) <= len(inside):
        # While a stage works those behind it wait for what it sends, in any pipeline.
        guess = of_a_moment and ops == {"batch_isend_irecv"}
        busy = tuple(sorted(statements.busy))
        return Absent(busy, stood(inside[0], statements), waiting=inside, guess=guess)
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
    sides.sort(key=lambda r: (-len(r), r))
    if len(sides) < 2 or (of_a_moment and len(ops) == 1):
        return None  # calls of one operation meet, whatever their lines: in them ranks pass each other by while they move
    if _in_groups_of_their_own(statements, sides):
        return None  # calls of different groups need not meet: who waits for whom, their members tell
    kinds = {r: w.call for r, w in statements.whereabouts.items()}
    events = tuple(e for side in sides[:4] for e in statements.of(side[0], FailedStack, RankException)[:1])
    apart = two_sides(None, sides, kinds, statements)
    if [kinds[side[0]].op in _FORMING for side in sides] == [True, *[False] * (len(sides) - 1)]:
        # Who is past the making of a group may have left it out, or was let through by those who now wait for each other.
        return replace(apart, culprits=(), tie=True, guess=True, events=events)
    # Whom those in a send or receive of their own wait for may be one of the others.
    alone = bool(paired) and not apart.tie and (sides[0] == paired or ops & {"send", "recv"})
    # Of even sides the one off the step is odd, unless ranks that nobody saw stand with it.
    even = 2 * len(sides[0]) <= len(inside) < len(incident.ranks)
    return replace(apart, events=events, guess=bool(alone) or of_a_moment or even)


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
