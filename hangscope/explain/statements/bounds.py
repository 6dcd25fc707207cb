"""What lines of text state about how far a rank came in a group, put into one table with what dumps recorded.

A watchdog's timeout states that a rank is in a call (op, seq, sizes) and has enqueued at least that many; a status or dump
signal states the last enqueued and completed call; a printed prefix states which group-local rank a global one is. They
are bounds as much as a dump's own counters are, so they go into the same queues: the frontiers, the wait-for graph and the
comparison of calls do not ask where a bound came from. What a dump tells further than a line is kept, and the reverse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import field, replace

import numpy as np

from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.explain.statements.outlived import outlived
from hangscope.explain.statements.refused import with_refused
from hangscope.explain.statements.statements import Statements
from hangscope.explain.statements.told_calls import InCall, ToldCalls
from hangscope.explain.statements.told_groups import Key, ToldGroups
from hangscope.incident import Absence, Frontier, Incident, Queue, RankRecord, State
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.store import StoreTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout

_POINT_TO_POINT = frozenset({"send", "recv", "recv_any_source"})
_UNKNOWN_OPS = frozenset({"coalesced", ""})  # a batch, whose calls the line does not tell
_NOT_COLLECTIVES = _POINT_TO_POINT | _UNKNOWN_OPS


@dataclass(slots=True)
class Bounds:
    """What text states of one rank in one group: the calls it is in by seq, and its last enqueued and completed seq."""

    calls: dict[int, InCall] = field(default_factory=dict)
    sends: dict[int, InCall] = field(default_factory=dict)
    enqueued: int | None = None
    completed: int | None = None
    events: list[Event] = field(default_factory=list)


def stated(incident: Incident, statements: Statements) -> dict[Key, Bounds]:
    """Return the bounds that the lines of c10d and its watchdog state, by rank and the name of the group."""
    table: dict[Key, Bounds] = defaultdict(Bounds)
    named: dict[int, dict[int, str]] = defaultdict(dict)
    signals: list[WatchdogStatus | DumpSignal] = [
        *statements.all(WatchdogStatus),
        *statements.all(DumpSignal),
    ]
    for counted in signals:
        name, rank = counted.group_name, counted.rank
        if rank is None or not name:
            continue
        enqueued, completed = counted.last_enqueued, counted.last_completed
        if isinstance(counted, WatchdogStatus) and counted.seq is not None:
            named[rank][counted.seq] = name
        if enqueued is None or (isinstance(counted, DumpSignal) and enqueued < 0):
            continue
        if completed is not None and completed > enqueued:
            continue  # one of the two numbers counts sends and receives, the other collectives
        bounds = table[(rank, name)]
        bounds.enqueued = max(enqueued, bounds.enqueued or 0, 0)
        if completed is not None:
            bounds.completed = max(completed, bounds.completed or 0, 0)
        bounds.events.append(counted)
    usual = {name for of_rank in named.values() for name in of_rank.values()}
    in_calls: list[InCall] = [*statements.all(WatchdogTimeout), *statements.all(AsyncError)]
    for event in in_calls:
        seq, rank = event.seq, event.rank
        if rank is None or seq is None or not event.op:
            continue
        name = event.group_name or named[rank].get(seq)
        if not name and len(usual) <= 1 and len(incident.groups) <= 1:
            name = next(iter(usual), incident.groups[0].name if incident.groups else "0")
        if not name:
            continue
        bounds = table[(rank, name)]
        calls = bounds.sends if event.op in _POINT_TO_POINT else bounds.calls
        calls.setdefault(seq, event)
        bounds.events.append(event)
    return table


def joined(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with what text states of its ranks beyond their dumps; the given one is not changed."""
    incident = with_refused(_closed(incident, outlived(incident, statements), Absence.EARLY), statements)
    table = stated(incident, statements)
    if not table:
        return incident
    groups = ToldGroups(incident, statements, table)
    incident = _closed(incident, _older(incident, statements, groups), None)
    kinds = ToldCalls(incident)
    counts_sends = {groups.gid(key) for key, bounds in table.items() if bounds.sends}
    counts_sends |= {gid for record in incident.ranks.values() for gid in record.p2p}
    ranks = dict(incident.ranks)
    for (rank, name), bounds in sorted(table.items()):
        gid = groups.gid((rank, name))
        if gid is None or rank not in ranks:
            continue
        record = ranks[rank]
        if record is incident.ranks[rank]:
            record = ranks[rank] = replace(record, queues=dict(record.queues), p2p=dict(record.p2p))
        _extend(record, gid, bounds, statements, kinds, gid in counts_sends)
    return replace(incident, ranks=ranks, groups=groups.all, kinds=incident.kinds.and_also(kinds.added))


def _older(incident: Incident, statements: Statements, groups: ToldGroups) -> frozenset[int]:
    """Return the ranks whose first timeout is of a call made behind their dumps: what these show open was over by then.

    Watchdogs count from the enqueue, so that the first to give up tells of the oldest open call.
    """
    found = set()
    for rank, record in incident.ranks.items():
        for first in statements.of(rank, WatchdogTimeout)[:1]:
            gid = groups.gid((rank, first.group_name or ""))
            own = record.queues.get(gid) if gid is not None and gid not in record.p2p else None
            if own is None or not len(own) or record.dump_file is None or first.op in _NOT_COLLECTIVES:
                continue
            if first.seq is not None and first.seq > int(own.seq.max()):
                found.add(rank)
    return frozenset(found)


def _closed(incident: Incident, ranks: frozenset[int], absence: Absence | None) -> Incident:
    """Return the incident with what the dumps of these ranks show open taken for over: they went on behind it."""
    if not ranks:
        return incident
    records = dict(incident.ranks)
    for rank in ranks:
        record = records[rank]
        closed = [
            {gid: replace(q, state=np.full(len(q), State.DONE, np.int8)) for gid, q in queues.items()}
            for queues in (record.queues, record.p2p)
        ]
        records[rank] = replace(record, queues=closed[0], p2p=closed[1], absence=absence or record.absence)
    return replace(incident, ranks=records)


def behind(statements: Statements, waiting: Iterable[int], culprits: Iterable[int]) -> list[Event]:
    """Return the lines that state who waits (of the first few) and how far the culprits came, or that they were idle."""
    lines: list[Event] = [e for r in list(waiting)[:3] for e in statements.of(r, WatchdogTimeout)[:1]]
    for rank in list(culprits)[:4]:
        lines += [*statements.of(rank, WatchdogTimeout), *statements.of(rank, DumpObserved)][:1]
        lines += [*statements.of(rank, WatchdogStatus), *statements.of(rank, DumpSignal)][:1]
    return lines[:8]


def overdue(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks without a dump of which a line says that they waited: for a call, or for others to join a group."""
    late = {e.rank for e in statements.all(WatchdogTimeout, GlooTimeout, GlooClosed, StoreTimeout)}
    raised = {e.rank for e in statements.all(RankException) if e.symptom}
    ranks = incident.ranks
    no_dump = {r for r in late if r in ranks and ranks[r].dump_file is None}
    early = {r for r in late | raised if r in ranks and ranks[r].absence is Absence.EARLY}
    return frozenset(r for r in no_dump | early if r is not None)


def idle(statements: Statements) -> frozenset[int]:
    """Return the ranks that had nothing overdue when others timed out: alive, and in no call since long enough."""
    late = {e.rank for e in statements.all(WatchdogTimeout, GlooTimeout, GlooClosed)}
    return frozenset(
        e.rank for e in statements.all(DumpObserved) if e.rank is not None and e.rank not in late
    )


def _extend(
    record: RankRecord, gid: int, bounds: Bounds, statements: Statements, kinds: ToldCalls, counts_sends: bool
) -> None:
    """Add to a rank's queue what text states beyond it."""
    own = record.queues.get(gid) if record.seen else None
    frontier = own.frontier if own is not None else Frontier()
    last = max(frontier.enqueued or 0, int(own.seq.max()) if own is not None and len(own) else 0)
    told = Frontier() if counts_sends else Frontier(bounds.enqueued, None, bounds.completed)
    seqs = [seq for seq, event in sorted(bounds.calls.items()) if seq > last and event.op not in _UNKNOWN_OPS]
    further = (told.enqueued or 0) > last or (told.completed or 0) > (frontier.completed or 0)
    if record.seen and not seqs and not further:
        return
    if own is not None and record.dump_file is not None:
        if counts_sends:
            return  # its seqs count otherwise than the line's
        # The dump was taken before the line was printed: what it shows is kept, and its frontier is the line's.
        record.queues[gid] = _continued(
            own, told, seqs, [kinds.call(gid, s, bounds.calls[s], statements) for s in seqs]
        )
        return
    if not seqs and told.enqueued is None:
        return
    of = [kinds.call(gid, s, bounds.calls[s], statements) for s in seqs]
    record.queues[gid] = _queue(record.rank, gid, seqs, of, [bounds.calls[s].line for s in seqs], told)
    if not record.seen or record.absence is Absence.TOLD:
        record.absence = Absence.TOLD
        record.calls_file = record.calls_file or bounds.events[0].file


def _queue(
    rank: int, gid: int, seqs: list[int], kinds: list[int], order: list[int], frontier: Frontier
) -> Queue:
    """Return the queue of calls that lines state; the call that timed out first was enqueued first."""
    n = len(seqs)
    return Queue(
        rank, gid,
        seq=np.array(seqs, np.int64), kind=np.array(kinds, np.int32), state=np.full(n, State.PENDING, np.int8),
        created=np.zeros(n, np.int64), order=np.array(order, np.int64), frontier=frontier, pending_only=True, told=True,
    )  # fmt: skip


def _continued(own: Queue, told: Frontier, seqs: list[int], kinds: list[int]) -> Queue:
    """Return a dump's queue with the calls and the frontier that a later line states."""
    completed = max(told.completed or 0, own.frontier.completed or 0)
    state = np.where(own.seq <= completed, np.int8(State.DONE), own.state)
    after = int(own.order.max(initial=0)) + 1
    return replace(
        own,
        seq=np.concatenate([own.seq, np.array(seqs, np.int64)]),
        kind=np.concatenate([own.kind, np.array(kinds, np.int32)]),
        state=np.concatenate([state, np.full(len(seqs), State.PENDING, np.int8)]),
        created=np.concatenate([own.created, np.zeros(len(seqs), np.int64)]),
        order=np.concatenate([own.order, np.arange(after, after + len(seqs))]),
        frontier=Frontier(max(told.enqueued or 0, *seqs, own.frontier.enqueued or 0), None, completed)
        if seqs or told.enqueued
        else own.frontier,
    )
