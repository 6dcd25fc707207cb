"""Dumps that their own ranks outlived: taken before the call in which the rank's traceback stands.

A dump that a timer writes now and then may be some calls older than the freeze. What it shows open was then over, and that it
shows a rank idle accuses nobody.
"""

from __future__ import annotations

from hangscope.explain.statements.statements import Death, Statements
from hangscope.frames import Frame, Stack
from hangscope.incident import Incident, RankRecord, State
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.callsite import user_frames

#: op (empty: not told) and lines of the user's
Site = tuple[str, tuple[tuple[str, int], ...]]


def outlived(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks (global) whose tracebacks stand in a call that is later than their dumps.

    So were those of ranks that wait in their dumps on gloo and then raised an error of their own in another line.
    A rank that waits in its dump and raises in a call of another line went on. One that is idle in its dump went on where it
    raises in the same call as such a rank; else it may have come late to the call that its peers wait in.
    """
    raised = {
        rank: _site(where.op or "", where.stack)
        for rank, where in sorted(statements.whereabouts.items())
        if where.kind == "log" and where.inside and where.op and incident.ranks[rank].dump_file is not None
    }
    later = {
        rank: site for rank, site in raised.items() if _holds(incident, incident.ranks[rank], site) is False
    }
    went_on = {rank: site for rank, site in later.items() if _waits(incident.ranks[rank])}
    sites = set(went_on.values())
    return (
        frozenset(went_on)
        | frozenset(rank for rank, site in later.items() if site in sites)
        | frozenset(death.rank for death in statements.deaths if _died_later(incident, statements, death))
    )


def _died_later(incident: Incident, statements: Statements, death: Death) -> bool:
    """Return whether a rank raised an error of its own elsewhere than in the calls that block it in its dump.

    On gloo a call blocks the host; on NCCL the program may be anywhere while calls are open. That it exited by itself, and
    that no wait of its own ended, shows that it did not raise first and wait in a handler then.
    """
    record, event, end = incident.ranks.get(death.rank), death.event, statements.exits.get(death.rank)
    if (
        record is None
        or record.dump_file is None
        or not isinstance(event, RankException)
        or not _waits(record)
    ):
        return False
    waited = statements.of(death.rank, GlooTimeout, GlooClosed)
    if (
        end is None
        or end.code <= 0
        or waited
        or any(e.symptom for e in statements.of(death.rank, RankException))
    ):
        return False
    raised = {(frame.file, frame.line) for frame in user_frames(event.frames)}
    for queue in (*record.queues.values(), *record.p2p.values()):
        for row in (queue.state <= State.STARTED).nonzero()[0].tolist():
            kind = incident.kinds[int(queue.kind[row])]
            called = {(frame.file, frame.line) for frame in user_frames(kind.stack)[:1]}
            if kind.backend != "gloo" or not raised or not called or called & raised:
                return False
    return True


def _site(op: str, stack: Stack) -> Site:
    return op, tuple((frame.file, frame.line) for frame in user_frames(stack))


def _waits(record: RankRecord) -> bool:
    """Return whether a dump shows a call that was neither finished nor given up when it was taken."""
    queues = (*record.queues.values(), *record.p2p.values())
    return any(bool((queue.state <= State.STARTED).any()) for queue in queues)


def _holds(incident: Incident, record: RankRecord, site: Site) -> bool | None:
    """Return whether a dump holds a call of this site that may be the last; None where it kept no lines to tell by."""
    _, lines = site
    if not lines:
        return None
    framed = False
    for queue in (*record.queues.values(), *record.p2p.values()):
        rows = {len(queue) - 1, *(queue.state != State.DONE).nonzero()[0].tolist()} if len(queue) else set()
        for row in sorted(rows):
            frames: tuple[Frame, ...] = tuple(user_frames(incident.kinds[int(queue.kind[row])].stack))
            framed = framed or bool(frames)
            if any((frame.file, frame.line) == lines[0] for frame in frames):
                return True
    return False if framed else None
