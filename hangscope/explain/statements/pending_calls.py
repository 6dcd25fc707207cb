"""Ranks without a dump, put into the collective in which their own stack or traceback shows them.

A traceback names a line, and the dumps of other ranks show which collective of which group comes from that line. Where a peer
has this collective pending, the rank is in it as well. Where it is at a line that no peer is at, and the job has a single group
in which all others are at one seq, the rank is at that seq too, in another collective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from hangscope.errors import Note
from hangscope.explain.statements.logged_calls import stated_queue
from hangscope.explain.statements.statements import Statements, Whereabouts
from hangscope.knowledge.callsite import COLLECTIVES, is_user, user_frames
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Stack
from hangscope.model.incident import Absence, CallKind, Frontier, Incident, State

#: Operations that a recorder and a stack call by the same name.
_NAMED_ALIKE = frozenset(
    {"all_reduce", "broadcast", "all_gather", "all_to_all", "reduce", "gather", "scatter", "barrier"}
)
_OF_A_BARRIER = {"barrier", "all_reduce"}  # as NCCL records it
_UNRECORDED = "monitored_barrier"  # made of sends and receives that no recorder keeps


@dataclass(frozen=True, slots=True)
class _Pending:
    """A collective that some rank has not finished: its group, seq and kind; `sure` where the recorder shows it pending."""

    gid: int
    seq: int
    kind: int
    sure: bool


def placed_by_stacks(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with ranks in the collectives where their stacks or tracebacks show them, and out of those that gloo's recorder leaves open."""
    ranks, added = dict(incident.ranks), list[CallKind]()
    shown = sorted(statements.whereabouts.items())
    for rank in statements.busy.union(r for r, where in shown if _is_past(incident, r, where)):
        queues = dict(ranks[rank].queues)
        for gid, queue in queues.items():
            state = np.where(queue.state == State.UNKNOWN, State.DONE, queue.state)
            queues[gid] = replace(queue, state=state)
        ranks[rank] = replace(ranks[rank], queues=queues)
    incident = replace(incident, ranks=ranks, notes=[*incident.notes, *_older_dumps(incident, statements)])
    without = [(r, w) for r, w in shown if w.inside and not ranks[r].seen and not ranks[r].queues]
    pending = list(_pending(incident)) if without else []
    ranks = dict(ranks)
    for rank, where in without:
        call = _with_a_peer(incident, rank, where, pending) or _alone(incident, where, pending, added)
        if call is not None:
            queues = {call.gid: stated_queue(rank, call.gid, [call.seq], [call.kind], Frontier(call.seq))}
            file = ranks[rank].calls_file or where.source
            ranks[rank] = replace(ranks[rank], queues=queues, absence=Absence.TOLD, calls_file=file)
    return replace(incident, ranks=ranks, kinds=incident.kinds.and_also(added)) if without else incident


def _older_dumps(incident: Incident, statements: Statements) -> Iterator[Note]:
    """Yield a note for each dump without the collective in which the traceback of its rank shows that the rank waited."""
    for rank, where in sorted(statements.whereabouts.items()):
        record = incident.ranks.get(rank)
        recorded = where.inside and where.op not in (None, "send", "recv", _UNRECORDED)
        if record is None or not record.dump_file or where.kind != "log" or not recorded:
            continue
        last, open_calls = last_calls(incident, rank), last_calls(incident, rank, State.STARTED)
        if last and not open_calls and not any(is_of(kind, where) for kind in last):
            text = f"was written before the freeze: it ends with {last[-1].op}, and the traceback in {where.source} shows rank {rank} in a later {where.op}"
            yield Note("older_dump", text, record.dump_file)


def _is_past(incident: Incident, rank: int, where: Whereabouts) -> bool:
    """Return whether a stack shows a rank in another operation and line than each of its last collectives; a traceback, in one that no recorder keeps."""
    if where.op is None or rank not in incident.ranks or (where.kind != "stack" and where.op != _UNRECORDED):
        return False
    return not any(is_of(kind, where) for kind in last_calls(incident, rank))


def last_calls(incident: Incident, rank: int, most: State = State.UNKNOWN) -> list[CallKind]:
    """Return the last recorded collective of a rank on each of its groups, of those that came no further than a state."""
    last = (q for q in incident.ranks[rank].queues.values() if len(q) and q.state[-1] <= most)
    return [incident.kinds.without_sizes(int(queue.kind[-1])) for queue in last]


def is_of(kind: CallKind, where: Whereabouts) -> bool:
    """Return whether a stack or traceback may show its rank in a collective: by its operation, or by the line that issued it."""
    return kind.op == where.op or is_from(kind.stack, where.stack)


def _pending(incident: Incident) -> Iterator[_Pending]:
    """Yield the last collective of each rank on each group, where it is not known to be over."""
    for record in incident.ranks.values():
        for gid, queue in record.queues.items() if record.dump_file is not None and record.seen else ():
            if len(queue) and queue.state[-1] != State.DONE:
                sure = queue.state[-1] != State.UNKNOWN
                yield _Pending(gid, int(queue.seq[-1]), int(queue.kind[-1]), sure)


def _with_a_peer(
    incident: Incident, rank: int, where: Whereabouts, pending: list[_Pending]
) -> _Pending | None:
    """Return the one pending collective that comes from the line at which a rank is, of a group that it is in."""
    own = (call for call in pending if rank in incident.groups[call.gid].ranks)
    found = [call for call in own if _may_be(incident.kinds.without_sizes(call.kind), where)]
    found = [call for call in found if call.sure] or found
    return found[0] if len({(call.gid, call.seq) for call in found}) == 1 else None


def _may_be(kind: CallKind, where: Whereabouts) -> bool:
    """Return whether a rank may be in a recorded collective: from its line, and not of another operation that the recorder names as well."""
    both = {kind.op, where.op}
    other = len(both) == 2 and both <= _NAMED_ALIKE and (kind.backend == "gloo" or both != _OF_A_BARRIER)
    # A line such as `loss.backward()` issues several, which gloo records by what it makes of them.
    called = {s[0].name for s in (kind.stack, where.stack) if s and s[0].file.endswith(COLLECTIVES[0])}
    other |= len(called) == 2
    return not other and is_from(kind.stack, where.stack)


def _alone(
    incident: Incident, where: Whereabouts, pending: list[_Pending], added: list[CallKind]
) -> _Pending | None:
    """Return another collective at the seq at which all others are, in a job of a single group."""
    sure = [call for call in pending if call.sure] or pending
    at_one = len(incident.groups) == 1 and len({call.seq for call in sure}) == 1
    if not at_one or where.op is None or not any(map(is_user, where.stack)):
        return None
    backend = incident.kinds.without_sizes(sure[0].kind).backend
    added.append(CallKind(where.op, backend, stack=where.stack, told=True))
    return replace(sure[0], kind=len(incident.kinds) + len(added) - 1)


def is_from(recorded: Stack, shown: Stack) -> bool:
    """Return whether a collective was issued where a stack or traceback shows a rank.

    A handler that raised another exception cuts off the traceback's outer frames. Paths are compared by their last part, as
    py-spy shortens them.
    """
    issued, seen = _frames(recorded), _frames(shown)
    if seen and issued[: len(seen)] == seen and not all("/torch/" in f.file for f in shown):
        return True
    lines = _frames(user_frames(shown))
    return bool(lines) and any(map(is_user, shown)) and _frames(user_frames(recorded)) == lines


def _frames(stack: Stack) -> tuple[tuple[str, str, int], ...]:
    # Of torch's own functions a stack shows the line that waits, and a dump the one that enqueues.
    outside = (frame for frame in stack if not frame.file.endswith(COLLECTIVES))
    return tuple((f.name, f.file.rsplit("/", 1)[-1], f.line) for f in outside)
