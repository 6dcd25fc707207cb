"""Which rank alone is blocked outside of a collective: at another place while all other ranks wait for their devices, or held up by a debugger, a signal or the kernel.

The CPU threads of an NCCL job wait for their devices outside of any collective, at the first result that they need: torch's
`synchronize`, or the driver's, shows such a wait.
"""

from __future__ import annotations

from math import inf

from hangscope.explain.finding import Absent, Extra, OwnCall, StuckCall
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.partitions import last_call
from hangscope.explain.text.stop import PROOFS
from hangscope.ingest.job_logs.activity import BUSY, IDLE, GpuUse, Held
from hangscope.ingest.job_logs.last_lines import Printed
from hangscope.ingest.lines.layers import seconds_of_day
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import GlooTimeout
from hangscope.knowledge.callsite import is_user, user_frame
from hangscope.knowledge.doing import doing, waits_for_its_device
from hangscope.knowledge.library import own_knowledge
from hangscope.model.events import Event
from hangscope.model.incident import Frame, Incident, Stack
from hangscope.model.regex import regex

ENDS_GROUPS = "destroy_process_group"
_OF_TORCH = regex(r"^(?:torch|at|c10d?|gloo)::|nccl|rccl|c10d")
_CLOCK = regex(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
_SOME, _DAY = 60, 86400  # s: what an asynchronous collective may be ahead of its rank; a day
_LEAST, _FEWEST = 4, 3  # stacks of which one may be the outlier; where not those of all ranks are here


def blocked_alone(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose stack is elsewhere, in no call of torch's, while all others wait for their devices."""
    at = {r: w.stack for r, w in statements.whereabouts.items() if w.kind == "stack"}
    complete = len(at) >= _LEAST and at.keys() == incident.ranks.keys()
    if len(at) < _FEWEST or statements.inside:
        return None
    outliers, end = [r for r, stack in at.items() if not waits_for_its_device(stack)], statements.external
    if len(outliers) != 1:
        return None
    own = at[outliers[0]]
    computes = of_the_program(own[0]) and not is_user(own[0])
    if computes or (user_frame(own) is None and not _of_its_own_in_cpp(own)):
        return None
    stopped = bool(statements.all(*PROOFS)) or (
        end is not None and stood_still(incident, statements, end) is True
    )
    return Absent((outliers[0],), guess=not stopped or not complete)


def ended_early(_: Incident, statements: Statements) -> Absent | None:
    """Name the few ranks that are ending their groups while all others whose stacks are known wait in a collective or for their devices."""
    at = {r: w for r, w in statements.whereabouts.items() if w.kind == "stack" and w.stack}
    ending = tuple(sorted(r for r, where in at.items() if where.op == ENDS_GROUPS))
    staying = tuple(sorted(at.keys() - {*ending}))
    waits = all(at[r].inside or waits_for_its_device(at[r].stack) for r in staying)
    if not ending or not staying or len(ending) > len(staying) or not waits:
        return None
    return Absent(ending, last_call(staying[0], statements), waiting=staying)


def _of_its_own_in_cpp(stack: Stack) -> bool:
    """Return whether a native stack is in code of a program in C++, by a line of it, and in nothing of torch's or a communication library's."""
    python = any(frame.file.endswith(".py") for frame in stack)
    return not python and any(f.line > 0 for f in stack) and not any(_OF_TORCH.search(f.name) for f in stack)


def held_by_its_host(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose stack waits for its host (a batch, a file, a lock, a compiler) while those of all others wait for other ranks."""
    at = {r: w for r, w in statements.whereabouts.items() if w.kind == "stack" and w.stack}
    known = {rank: doing(where.stack) for rank, where in at.items()}
    held = [r for r, d in known.items() if d is not None and d.host and not at[r].inside]
    others = [r for r in at if r not in held]
    waits = all(at[r].inside or ((d := known[r]) is not None and (d.collective or d.message)) for r in others)
    if len(held) != 1 or len(at) < _FEWEST or not waits:
        return None
    return Absent((held[0],), guess=at.keys() != incident.ranks.keys())


def alone_in_a_call(incident: Incident, statements: Statements) -> Extra | None:
    """Name the few ranks that are in a collective while all others have returned from what they were asked to do: these do not make it."""
    at = {r: w for r, w in statements.whereabouts.items() if w.kind == "stack" and w.stack}
    inside = tuple(sorted(r for r, where in at.items() if where.inside and where.op))
    returned = [r for r in at if r not in inside and (d := doing(at[r].stack)) is not None and d.returned]
    if not inside or len(inside) >= len(returned) or len(inside) + len(returned) < len(incident.ranks):
        return None
    call = last_call(inside[0], statements)
    return Extra(inside, call, OwnCall(call.kind), waiting=inside)


def awaited(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one known rank that is at work while all other processes whose stacks were taken wait for a message of another one."""
    at = {r: w for r, w in statements.whereabouts.items() if w.kind == "stack" and w.stack}
    waits = [(d := doing(own.stack)) is not None and d.message for own in incident.unplaced]
    if len(at) != 1 or not waits or not all(waits):
        return None
    ((rank, where),) = at.items()
    known = doing(where.stack)
    return None if where.inside or (known is not None and known.message) else Absent((rank,), guess=True)


def idle_device(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose GPU alone is idle while all others of its host are busy, if its stack is elsewhere as well.

    A rank that waits in a collective keeps its GPU busy. GPUs are numbered as the ranks of a job of one host that has them all.
    """
    use = idle_alone(incident, statements)
    own = statements.whereabouts.get(use.gpu) if use is not None else None
    if use is None or own is None or own.inside or not own.stack or waits_for_its_device(own.stack):
        return None
    return Absent((use.gpu,), events=(use,))


def idle_alone(incident: Incident, statements: Statements) -> GpuUse | None:
    """Return the use of the only GPU of a host that is idle while all others are busy, if all ranks of the job may be of that host."""
    uses = {e.gpu: e for e in statements.all(GpuUse)}
    idle = [use for use in uses.values() if use.percent <= IDLE]
    busy = [use for use in uses.values() if use.percent >= BUSY]
    of_one_host = len(idle) + len(busy) == len(uses) >= _LEAST and max(incident.ranks, default=0) <= max(uses)
    return idle[0] if len(idle) == 1 and of_one_host else None


def of_the_program(frame: Frame) -> bool:
    """Return whether a frame is the user's or torch's."""
    return is_user(frame) or "torch/" in frame.file.replace("\\", "/")


def at_work_alone(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank that printed lines of its own again and again while all others that print waited for their timeout."""
    printed, waiting = worked_on(statements), statements.ranks(WatchdogTimeout, GlooTimeout)
    if printed is None or printed.rank is None:
        return None
    return Absent((printed.rank,), waiting=tuple(sorted(waiting)), guess=True, events=(printed,))


def worked_on(statements: Statements) -> Printed | None:
    """Return what the one rank printed that went on with lines of its own while others waited, until they timed out."""
    waits: list[WatchdogTimeout | GlooTimeout] = [
        *statements.all(WatchdogTimeout),
        *statements.all(GlooTimeout),
    ]
    timeouts = {e.rank: e for e in waits if e.rank is not None}
    ends = [
        (at, e.ran_ms / 1000) for e in timeouts.values() if e.ran_ms and (at := _time_of_day(e)) is not None
    ]
    if not ends:
        return None
    end, waited = min(ends)
    found = []
    for e in statements.all(Printed):
        before = end - (_time_of_day(e) or inf)
        first = min((t.line for t in timeouts.values() if t.file == e.file), default=0)
        meanwhile = before > 0 or any(line < first for line in e.numbers)  # it may go on after that
        if e.rank not in timeouts and e.counts[-1] > 1 and meanwhile and -_DAY / 2 < before < waited - _SOME:
            found.append(e)
    return found[0] if len({e.rank for e in found}) == 1 else None


def behind_the_main_process(incident: Incident, statements: Statements) -> Absent | None:
    """Name rank 0 where all that are known to wait do so in a library's `main_process_first`, which lets the main process go first."""
    stood = {r: w.stack for r, w in statements.whereabouts.items() if w.inside and w.stack}
    turns = all(own_knowledge().read(stack).kind == "turns" for stack in stood.values())
    if not stood or not turns or 0 in statements.whereabouts or 0 in statements.symptoms:
        return None
    waiting = tuple(sorted({*stood, *statements.symptoms}))
    return Absent((0,), StuckCall(rank=waiting[0]), waiting=waiting, guess=True)


def _time_of_day(event: Event) -> float | None:
    """Return the seconds since midnight at which a line was printed."""
    if event.in_the_year is not None:
        return event.in_the_year % _DAY
    clock = _CLOCK.search(event.text)
    return float(seconds_of_day(clock)) if clock else None


def held_up(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank that a debugger, a signal or the kernel holds up."""
    held, waited, named = statements.all(Held), statements.ranks(*PROOFS), statements.ranks(Held)
    if len(named) != 1 or named & waited:
        return None
    return Absent(tuple(named), waiting=tuple(sorted(waited)), events=tuple(held[:2]))
