"""What others show of a rank: who left first, who alone had nothing under way, whose watchdog or debug server does not answer.

The first two are weak: a watchdog's abort closes connections too, and a rank with nothing enqueued may come to its call yet.
"""

from __future__ import annotations

from hangscope.explain.finding import Absent, Different, Late, OwnCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.sides import stood
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
    told, waited = statements.by_rank(LeftFirst), statements.ranks(*PROOFS)
    if len(told) != 1 or not waited or waited & told.keys():
        return None
    ((rank, gone),) = told.items()
    if any(e.file == gone.file and e.line < gone.line for e in statements.all(*PROOFS)):
        return None
    return Unseen((rank,), waiting=tuple(sorted(waited)), guess=True, events=(gone,))


def came_after(incident: Incident, statements: Statements) -> Late | Different | None:
    """Name the one rank that found its peers gone while all of them had waited until their timeouts: they waited for it.

    Where all stood at one line it made the same call too late, else it was in another one. That it printed its error well after
    theirs proves it; a neighbour of the first to give up may lose it a moment before its own timeout.
    """
    timed = statements.by_rank(GlooTimeout)
    lost = {rank: e for rank, e in statements.by_rank(GlooClosed).items() if rank not in timed}
    if len(lost) != 1 or len(timed) < _OTHERS or {*timed, *lost} != set(incident.ranks) or statements.deaths:
        return None
    ((rank, event),) = lost.items()
    moments = [e.in_the_year for e in timed.values() if e.in_the_year is not None]
    after = event.in_the_year - max(moments) if moments and event.in_the_year is not None else None
    if after is not None and after < _LATER:
        return None
    lines = {r: (w.op, user_frames(w.stack)) for r, w in statements.whereabouts.items() if w.inside}
    if rank not in lines or len({lines.get(r) for r in timed}) != 1:
        return None
    stuck, own = (stood(r, statements) for r in (min(timed), rank))
    kind = Late if lines[rank] == lines.get(min(timed)) else Different
    return kind(
        (rank,), stuck, OwnCall(own.kind), guess=kind is Late and after is None, events=(event, *list(timed.values())[:2])
    )  # fmt: skip


def nothing_under_way(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose monitor counted no call under way where all others that printed one had some."""
    told = statements.by_rank(HeartbeatTimeout, lambda e: e.pending is not None)
    idle = [rank for rank, event in told.items() if event.pending == 0]
    others = tuple(rank for rank in told if rank not in idle)
    if len(idle) != 1 or len(others) < _OTHERS:
        return None
    return Absent(tuple(idle), waiting=others, guess=True, events=(told[idle[0]], told[others[0]]))


def heart_stopped(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose own watchdog stood still before any other rank's call timed out: a thread of it blocks it.

    A watchdog that stands still later may have been stopped by the abort of a call that had timed out. Where no call timed out,
    the launcher tells that this rank alone failed: its monitor ended it before its peers' time was up.
    """
    still = statements.by_rank(HeartbeatTimeout, lambda e: e.what == "watchdog_stuck")
    timeouts, waiting = statements.all(WatchdogTimeout), statements.ranks(WatchdogTimeout)
    ended = {e.rank for e in statements.all(Exit) if e.code != 0}
    if len(still) != 1 or waiting & still.keys() or not (waiting or (not timeouts and ended == still.keys())):
        return None
    ((rank, event),) = still.items()
    if event.in_the_year is None or any((e.in_the_year or 0.0) <= event.in_the_year for e in timeouts):
        return None
    told = (*statements.of(rank, HeartbeatTimeout)[:2], *timeouts[:1])
    return Absent((rank,), waiting=tuple(sorted(waiting)), events=told)


def holds_the_gil(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose own monitor could not get the interpreter's lock, where others waited and it did not time out.

    A thread that holds the lock in native code stops its host, and waits for no other rank.
    """
    told = statements.by_rank(HeartbeatTimeout, lambda e: e.what == "gil")
    late = statements.ranks(WatchdogTimeout)
    if len(told) != 1 or late & told.keys() or len(late) < _OTHERS:
        return None
    return Absent(tuple(told), waiting=tuple(sorted(late)), guess=True, events=tuple(told.values()))


def held_up(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank that a debugger or the kernel holds up; a debugger whose rank no line tells holds the one that others wait for."""
    held, waited = statements.all(Held), statements.ranks(*PROOFS)
    told, left = statements.ranks(Held), incident.ranks.keys() - waited
    if held and not told and waited and len(left) == 1 and {e.by for e in held} == {"debugger"}:
        told = frozenset(left)
    if len(told) != 1 or told & waited:
        return None
    return Absent(tuple(told), waiting=tuple(sorted(waited)), events=tuple(held[:2]))


def no_answer(incident: Incident, statements: Statements) -> Unseen | Absent | None:
    """Name the few ranks whose debug server does not answer, where all that do stand in a collective."""
    told = statements.by_rank(NoAnswer)
    inside = tuple(sorted(statements.inside - told.keys()))
    if not told or len(told) > len(inside) or len(inside) + len(told) < len(incident.ranks):
        return None
    kind = Unseen if all(e.gone for e in told.values()) else Absent
    return kind(tuple(told), stood(inside[0], statements), waiting=inside, events=tuple(told.values())[:3])
