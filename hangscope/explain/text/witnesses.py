"""What others show of a rank: who left first, who alone had nothing under way, whose debug server does not answer.

The first two are weak: a watchdog's abort closes connections too, and a rank with nothing enqueued may come to its call yet.
"""

from __future__ import annotations

from hangscope.explain.finding import Absent, StuckCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.stop import PROOFS
from hangscope.incident import Incident
from hangscope.ingest.nccl.service_thread import LeftFirst
from hangscope.ingest.torch_logs.c10d import HeartbeatTimeout
from hangscope.ingest.torch_logs.debug_pages import NoAnswer

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
    stuck = StuckCall(rank=waiting[0] if waiting else None)
    return Unseen(
        (gone.rank,), stuck, waiting=waiting, reached=frozenset(waiting), guess=True, events=(gone,)
    )


def nothing_under_way(incident: Incident, statements: Statements) -> Absent | None:
    """Name the one rank whose monitor counted no call under way where all others that printed one had some."""
    told = {
        e.rank: e for e in statements.all(HeartbeatTimeout) if e.rank is not None and e.pending is not None
    }
    idle = [rank for rank, event in told.items() if event.pending == 0]
    others = tuple(sorted(rank for rank in told if rank not in idle and rank in incident.ranks))
    if len(idle) != 1 or len(others) < _OTHERS:
        return None
    return Absent(
        tuple(idle), StuckCall(rank=others[0]), waiting=others, reached=frozenset(others), guess=True,
        events=(told[idle[0]], told[others[0]]),
    )  # fmt: skip


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
