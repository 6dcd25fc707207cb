"""What others show of a rank: who left first, who alone had nothing under way, whose watchdog or debug server does not answer.

The first two are weak: a watchdog's abort closes connections too, and a rank with nothing enqueued may come to its call yet.
"""

from __future__ import annotations

from hangscope.explain.finding import Absent, Different, Late, OwnCall, StuckCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.output import apart
from hangscope.explain.text.stop import PROOFS
from hangscope.incident import Incident
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.held import Held
from hangscope.ingest.nccl.service_thread import LeftFirst
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.debug_pages import NoAnswer
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.callsite import user_frames

_LATER = 2.0  # seconds after the last timeout at which a lost peer tells of a late rank
_OTHERS = 2  # that have calls under way before the one without is suspected


def left_first(incident: Incident, statements: Statements) -> Unseen | None:
    """Name the one rank whose connections were closed before any other's, in a job that is known to have stopped.

    A rank that waited until a timeout itself was ended by that; so may be one that left after the first timeout was printed.
    """
    told = [e for e in statements.all(LeftFirst) if e.rank is not None]
    stopped = [e for kind in PROOFS for e in statements.all(kind)]
    if len({e.rank for e in told}) != 1 or not stopped:
        return None
    gone = told[0]
    waited = {e.rank for e in stopped if e.rank is not None}
    if gone.rank is None or gone.rank in waited:
        return None
    if any(e.file == gone.file and e.line < gone.line for e in stopped):
        return None
    waiting = tuple(sorted(rank for rank in waited if rank is not None and rank in incident.ranks))
    return apart(Unseen, (gone.rank,), waiting, (gone,), guess=True)


def came_after(incident: Incident, statements: Statements) -> Late | Different | None:
    """Name the one rank that found its peers gone while all of them had waited until their timeouts: they waited for it.

    Where all stood at one line it made the same call too late, else it was in another one. That it printed its error well after
    theirs proves it; a neighbour of the first to give up may lose it a moment before its own timeout.
    """
    timed = {e.rank: e for e in statements.all(GlooTimeout) if e.rank is not None}
    lost = {e.rank: e for e in statements.all(GlooClosed) if e.rank is not None and e.rank not in timed}
    ended = {death.rank for death in statements.deaths}
    if len(lost) != 1 or len(timed) < _OTHERS or {*timed, *lost} != set(incident.ranks) or ended:
        return None
    (rank, event), waiting = next(iter(lost.items())), tuple(sorted(timed))
    moments = [e.in_the_year for e in timed.values() if e.in_the_year is not None]
    after = event.in_the_year - max(moments) if moments and event.in_the_year is not None else None
    if after is not None and after < _LATER:
        return None
    stood = {r: (w.op, user_frames(w.stack)) for r, w in statements.whereabouts.items() if w.inside}
    if rank not in stood or len({stood.get(r) for r in waiting}) != 1:
        return None
    call = statements.whereabouts[rank].call
    stuck = StuckCall(rank=waiting[0], kind=statements.whereabouts[waiting[0]].call)
    of = Late if stood[rank] == stood[waiting[0]] else Different
    return of(
        (rank,), stuck, OwnCall(call), waiting=waiting, reached=frozenset(waiting), guess=of is Late and after is None,
        events=(event, *(timed[r] for r in waiting[:2])),
    )  # fmt: skip


def nothing_under_way(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose monitor counted no call under way where all others that printed one had some."""
    told = {
        e.rank: e for e in statements.all(HeartbeatTimeout) if e.rank is not None and e.pending is not None
    }
    idle = [rank for rank, event in told.items() if event.pending == 0]
    others = tuple(sorted(rank for rank in told if rank not in idle and rank in incident.ranks))
    if len(idle) != 1 or len(others) < _OTHERS:
        return None
    return apart(Absent, idle, others, (told[idle[0]], told[others[0]]), guess=True)


def heart_stopped(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose own watchdog stood still before any other rank's call timed out: a thread of it blocks it.

    A watchdog that stands still later may have been stopped by the abort of a call that had timed out. Where no call timed out,
    the launcher tells that this rank alone failed: its monitor ended it before its peers' time was up.
    """
    still = [e for e in statements.all(HeartbeatTimeout) if e.what == "watchdog_stuck" and e.rank is not None]
    timeouts = statements.all(WatchdogTimeout)
    waiting = tuple(sorted({e.rank for e in timeouts if e.rank is not None and e.rank in incident.ranks}))
    moments = [e.in_the_year for e in timeouts]
    rank, at = (still[0].rank, still[0].in_the_year) if still else (None, None)
    failed = {e.rank for e in statements.all(Exit) if e.code != 0}
    if not timeouts and failed == {rank}:
        waiting = tuple(r for r in sorted(incident.ranks) if r != rank)
    if rank is None or at is None or len({e.rank for e in still}) != 1 or rank in waiting or not waiting:
        return None
    if any(moment is None or moment <= at for moment in moments):
        return None
    told = statements.of(rank, HeartbeatTimeout)
    return apart(Absent, (rank,), waiting, (*told[:2], *timeouts[:1]))


def holds_the_gil(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose own monitor could not get the interpreter's lock, where others waited and it did not time out.

    A thread that holds the lock in native code stops its host, and waits for no other rank.
    """
    told = {e.rank: e for e in statements.all(HeartbeatTimeout) if e.rank is not None and e.what == "gil"}
    late = {e.rank for e in statements.all(WatchdogTimeout)}
    others = tuple(sorted(r for r in late if r is not None and r in incident.ranks and r not in told))
    if len(told) != 1 or late & set(told) or len(others) < _OTHERS:
        return None
    return apart(Absent, told, others, told.values())


def held_up(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank that a debugger or the kernel holds up; a debugger whose rank no line tells holds the one that others wait for."""
    held = statements.all(Held)
    told = {e.rank for e in held if e.rank is not None}
    waited = {e.rank for kind in PROOFS for e in statements.all(kind) if e.rank is not None}
    left = set(incident.ranks) - waited
    if held and not told and waited and len(left) == 1 and {e.by for e in held} == {"debugger"}:
        told = left
    if len(told) != 1 or told & waited:
        return None
    return apart(Absent, told, sorted(waited & set(incident.ranks)), held[:2])


def no_answer(incident: Incident, statements: Statements) -> Unseen | Absent | None:
    """Name the few ranks whose debug server does not answer, where all that do stand in a collective."""
    told = {e.rank: e for e in statements.all(NoAnswer) if e.rank is not None}
    inside = tuple(r for r, where in sorted(statements.whereabouts.items()) if where.inside and r not in told)
    silent = tuple(sorted(rank for rank in told if rank in incident.ranks))
    if not silent or len(silent) > len(inside) or len(inside) + len(silent) < len(incident.ranks):
        return None
    stuck = StuckCall(rank=inside[0], kind=statements.whereabouts[inside[0]].call)
    kind = Unseen if all(e.gone for e in told.values()) else Absent
    events = tuple(told[rank] for rank in silent[:3])
    return kind(silent, stuck, waiting=inside, reached=frozenset(inside), events=events)
