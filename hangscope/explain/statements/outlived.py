"""Dumps that their own ranks outlived: taken before the call in which the rank's traceback stands.

A dump that a timer writes now and then may be some calls older than the freeze. What it shows open was then over, and that it
shows a rank idle accuses nobody.
"""

from __future__ import annotations

from hangscope.explain.statements.statements import Death, Statements
from hangscope.frames import Stack
from hangscope.incident import CallKind, Incident, RankRecord, State
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.knowledge.callsite import user_frames

Lines = tuple[tuple[str, int], ...]  # (file, line) of the user's frames, innermost first


def outlived(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks (global) whose tracebacks stand in a call that is later than their dumps.

    So were those of ranks that wait in their dumps on gloo and then raised an error of their own in another line.
    A rank that waits in its dump and raises in a call of another line went on. One that is idle in its dump went on where it
    raises in the same call as such a rank; else it may have come late to the call that its peers wait in.
    """
    later: dict[int, tuple[str, Lines]] = {}
    for rank, where in statements.whereabouts.items():
        record, at = incident.ranks[rank], _lines(where.stack)
        if where.kind == "log" and where.op and at and record.dump_file is not None:
            called = [_lines(kind.stack) for kind in _last_calls(incident, record)]
            if any(called) and not any(at[0] in lines for lines in called):
                later[rank] = (where.op, at)
    sites = {site for rank, site in later.items() if _waits(incident.ranks[rank])}
    died = {death.rank for death in statements.deaths if _died_later(incident, statements, death)}
    return frozenset(died.union(rank for rank, site in later.items() if site in sites))


def _died_later(incident: Incident, statements: Statements, death: Death) -> bool:
    """Return whether a rank raised an error of its own elsewhere than in the calls that block it in its dump.

    On gloo a call blocks the host; on NCCL the program may be anywhere while calls are open. That it exited by itself, and
    that no wait of its own ended, shows that it did not raise first and wait in a handler then.
    """
    rank, event, end = death.rank, death.event, statements.exits.get(death.rank)
    record = incident.ranks[rank]
    if record.dump_file is None or not isinstance(event, RankException) or not _waits(record):
        return False
    waited = statements.of(rank, GlooTimeout, GlooClosed) or rank in statements.symptoms
    if end is None or end.code <= 0 or waited:
        return False
    raised = _lines(event.frames)
    blocks = [(kind.backend, _lines(kind.stack)) for kind in _last_calls(incident, record, completed=False)]
    return bool(raised) and all(
        backend == "gloo" and lines and lines[0] not in raised for backend, lines in blocks
    )


def _lines(stack: Stack) -> Lines:
    return tuple((frame.file, frame.line) for frame in user_frames(stack))


def _waits(record: RankRecord) -> bool:
    """Return whether a dump shows a call that was neither finished nor given up when it was taken."""
    queues = (*record.queues.values(), *record.p2p.values())
    return any(bool((queue.state <= State.STARTED).any()) for queue in queues)


def _last_calls(incident: Incident, record: RankRecord, completed: bool = True) -> list[CallKind]:
    """Return the calls that a dump shows open, and the last one of each group where `completed` holds."""
    found = []
    for queue in (*record.queues.values(), *record.p2p.values()):
        rows = set((queue.state != State.DONE).nonzero()[0].tolist())
        rows |= {len(queue) - 1} if completed and len(queue) else set()
        found += [incident.kinds[int(queue.kind[row])] for row in sorted(rows)]
    return found
