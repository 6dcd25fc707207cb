"""Which rank alone is blocked elsewhere while all others wait, or is held up by a debugger, a signal or the kernel.

The CPU threads of an NCCL job wait for their devices outside of any collective, at the first result that they need: torch's
`synchronize`, or the driver's, shows such a wait.
"""

from __future__ import annotations

from math import inf

from hangscope.explain.finding import Absent, Extra, OwnCall, StuckCall
from hangscope.explain.statements.standstill import stood_still
from hangscope.explain.statements.statements import Statements, Whereabouts
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


def elsewhere(incident: Incident, statements: Statements) -> Absent | Extra | None:
    """Name the few ranks whose stacks are elsewhere while those of all others wait for other ranks, or for their devices.

    They end their groups, wait for their host (a batch, a file, a lock, a compiler), or are at work in no call of torch's. If it is
    most that are elsewhere, and these have returned from what they were asked to do, the few are those that wait.
    """
    at, ranks = statements.stacks, incident.ranks
    does = {rank: _does(where) for rank, where in at.items() if not _waits(where)}
    few, kinds = tuple(sorted(does)), set(does.values())
    waiting = tuple(sorted(at.keys() - does.keys()))
    complete = at.keys() == ranks.keys()
    if not waiting and len(few) == 1:
        known = [doing(own.stack) for own in incident.unplaced]
        awaited = bool(known) and all(d is not None and d.message for d in known)
        return Absent(few, guess=True) if awaited else None
    if waiting and kinds == {"returned"} and len(waiting) < len(few) and complete:
        call = last_call(waiting[0], statements)
        named = call.kind is not None and call.kind.op
        return Extra(waiting, call, OwnCall(call.kind), waiting=waiting) if named else None
    if kinds == {"ends"} and len(few) <= len(waiting):
        return Absent(few, last_call(waiting[0], statements), waiting=waiting)
    if len(few) != 1 or len(at) < _FEWEST or not kinds <= {"host", "work"}:
        return None
    if statements.inside and (kinds == {"work"} or statements.busy):
        return None  # `sites` knows the calls of those that wait
    if kinds == {"work"}:
        end, complete = statements.external, complete and len(at) >= _LEAST
        stopped = statements.any_of(*PROOFS) or (end is not None and stood_still(incident, statements, end))
        complete = complete and bool(stopped)
    return Absent(few, guess=not complete)


def _waits(where: Whereabouts) -> bool:
    """Return whether a stack waits for other ranks, or for its device."""
    known = doing(where.stack)
    of_others = known is not None and (known.collective or known.message)
    return where.op != ENDS_GROUPS and (where.inside or of_others or waits_for_its_device(where.stack))


def _does(where: Whereabouts) -> str:
    """Return what a rank does that does not wait for others: it ends its groups, waits for its host, has returned, or is at work."""
    known, own = doing(where.stack), where.stack
    if where.op == ENDS_GROUPS:
        return "ends"
    if known is not None and (known.host or known.returned):
        return "host" if known.host else "returned"
    computes = of_the_program(own[0]) and not is_user(own[0])
    return "work" if not computes and (user_frame(own) is not None or _of_its_own_in_cpp(own)) else ""


def _of_its_own_in_cpp(stack: Stack) -> bool:
    """Return whether a native stack is in code of a program in C++, by a line of it, and in nothing of torch's or a communication library's."""
    python = any(frame.file.endswith(".py") for frame in stack)
    return not python and any(f.line > 0 for f in stack) and not any(_OF_TORCH.search(f.name) for f in stack)


def idle_device(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose GPU alone is idle while all others of its host are busy (as in a collective), if its stack is elsewhere as well."""
    use = idle_alone(incident, statements)
    own = statements.whereabouts.get(use.gpu) if use is not None else None
    at_work = own is not None and own.stack and not own.inside and not waits_for_its_device(own.stack)
    return Absent((use.gpu,), events=(use,)) if use is not None and at_work else None


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
    waits: list[WatchdogTimeout | GlooTimeout] = [*statements.all(WatchdogTimeout)]
    timeouts = {e.rank: e for e in [*waits, *statements.all(GlooTimeout)] if e.rank is not None}
    timed = [(_time_of_day(e), (e.ran_ms or 0) / 1000) for e in timeouts.values()]
    end, waited = min(((at, ran) for at, ran in timed if at is not None and ran), default=(None, 0.0))
    if end is None:
        return None
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
