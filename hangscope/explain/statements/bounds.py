"""What log lines state about how far a rank came in a group, put into one table with what dumps recorded.

They are bounds as much as a dump's own counters are, so they go into the same queues: nothing later asks where a bound came from.
Where a dump and a line disagree, the one that got further counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import field, replace

import numpy as np

from hangscope.explain.statements.logged_calls import (
    InCall,
    Key,
    LoggedCalls,
    LoggedGroups,
    stated_queue,
    with_refused,
)
from hangscope.explain.statements.statements import WAITED, Statements
from hangscope.ingest.nccl.comm import UnmadeCommunicator
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.store import StoreTimeout
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import Absence, Frontier, Incident, RankRecord, State

_POINT_TO_POINT = frozenset({"send", "recv", "recv_any_source"})
_PEERS = 4
_UNKNOWN_OPS = frozenset({"coalesced", ""})  # a batch, whose ops the line does not list


@dataclass(slots=True)
class Bounds:
    """What text states of one rank in one group; `counts_sends`: it is in a send or receive, so that these numbers count them as well."""

    calls: dict[int, InCall] = field(default_factory=dict)
    counts_sends: bool = False
    enqueued: int | None = None
    completed: int | None = None
    events: list[Event] = field(default_factory=list)


def stated(incident: Incident, statements: Statements) -> dict[Key, Bounds]:
    """Return the bounds that the lines of c10d and its watchdog state, by rank and the name of the group."""
    table: dict[Key, Bounds] = defaultdict(Bounds)
    named: dict[tuple[int, int], str] = {}  # the group of a collective, by its rank and seq
    counts: list[WatchdogStatus | DumpSignal] = [*statements.all(WatchdogStatus)]
    for counted in [*counts, *statements.all(DumpSignal)]:
        name, rank = counted.group_name, counted.rank
        enqueued, completed = counted.last_enqueued, counted.last_completed
        if rank is None or not name:
            continue
        if isinstance(counted, WatchdogStatus) and counted.seq is not None:
            named[rank, counted.seq] = name
        elif enqueued is None or enqueued < 0:
            continue
        if completed is not None and completed > (enqueued or 0):
            continue  # one of the two numbers counts sends and receives, the other collectives
        bounds = table[(rank, name)]
        bounds.enqueued = max(enqueued or 0, bounds.enqueued or 0)
        bounds.completed = _most(completed, bounds.completed)
        bounds.events.append(counted)
    in_calls: list[InCall] = [*statements.all(WatchdogTimeout), *statements.all(AsyncError)]
    names = set(named.values()) or {group.name for group in incident.groups}
    names = names or {e.group_name for e in in_calls if e.group_name} or {""}
    only = min(names) if len(names) == 1 and len(incident.groups) <= 1 else None
    for event in in_calls:
        seq, rank = event.seq, event.rank
        if rank is None or seq is None or not event.op:
            continue
        name = event.group_name or named.get((rank, seq)) or only
        if name is not None:
            bounds = table[(rank, name)]
            bounds.events.append(event)
            if event.op in _POINT_TO_POINT:
                bounds.counts_sends = True
            else:
                bounds.calls.setdefault(seq, event)
    alike = _alike(table)
    for (_, name), bounds in table.items():
        batches = [seq for seq, e in bounds.calls.items() if e.op in _UNKNOWN_OPS]
        for seq in batches:
            if (name, seq) not in alike:
                del bounds.calls[seq]
    return table


def _alike(table: Mapping[Key, Bounds]) -> set[tuple[str, int]]:
    """Return the batches, by group and seq, that all but one of many members issued with equal sizes. Equal sizes show a collective of peers, and not the stages of a pipeline."""
    sizes: dict[tuple[str, int], Counter[tuple[int | None, int | None]]] = defaultdict(Counter)
    for (_, name), bounds in table.items():
        for seq, e in bounds.calls.items():
            sizes[name, seq][e.numel_in, e.numel_out] += 1
    few = ((batch, sorted(times.values())) for batch, times in sizes.items())
    return {batch for batch, times in few if len(times) == 2 and times[0] == 1 and times[1] >= _PEERS}


def joined(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with what text states of its ranks beyond their dumps."""
    incident = with_refused(incident, statements)
    table = stated(incident, statements)
    groups = LoggedGroups(incident, statements, table)
    kinds = LoggedCalls(incident)
    counts_sends = {groups.gid(key) for key, bounds in table.items() if bounds.counts_sends}
    counts_sends |= {gid for record in incident.ranks.values() for gid in record.p2p}
    ranks = dict(incident.ranks)
    incident = replace(incident, groups=groups.all)
    for (rank, name), bounds in sorted(table.items()):
        gid = groups.gid((rank, name))
        if gid is not None and rank in ranks:
            if ranks[rank] is incident.ranks[rank]:
                ranks[rank] = replace(ranks[rank], queues=dict(ranks[rank].queues))
            _extend(ranks[rank], gid, bounds, statements, kinds, gid in counts_sends)
    return replace(incident, ranks=ranks, kinds=incident.kinds.and_also(kinds.added))


def behind(statements: Statements, waiting: Iterable[int], culprits: Iterable[int]) -> list[Event]:
    """Return the lines that state which ranks wait (the first few) and how far the culprits came, or that they were idle."""
    lines: list[Event] = [e for r in list(waiting)[:3] for e in statements.of(r, WatchdogTimeout)[:1]]
    for rank in list(culprits)[:4]:
        lines += [*statements.of(rank, WatchdogTimeout), *statements.of(rank, DumpObserved)][:1]
        lines += [*statements.of(rank, WatchdogStatus), *statements.of(rank, DumpSignal)][:1]
    return lines[:8]


def overdue(incident: Incident, statements: Statements) -> frozenset[int]:
    """Return the ranks without a recorded call that a line shows waiting: in a collective, or for others to join a group."""
    unmade = (e for e in statements.all(UnmadeCommunicator) if e.phase == "incomplete" and not e.complete)
    late = statements.ranks(*WAITED, StoreTimeout).union(*(e.blocked for e in unmade))
    ranks = incident.ranks
    return frozenset(r for r in late if ranks[r].dump_file is None or not ranks[r].seen)


def idle(statements: Statements) -> frozenset[int]:
    """Return the ranks that had nothing overdue when others timed out: alive, and in no collective for long enough."""
    return statements.ranks(DumpObserved) - statements.ranks(*WAITED)


def free(statements: Statements) -> frozenset[int]:
    """Return the ranks that text shows outside of every collective, or a stack, at a place where no other rank is."""
    places = Counter(where.stack[0] for where in statements.whereabouts.values() if where.stack)
    alone = {r for r in statements.busy if places[statements.whereabouts[r].stack[0]] == 1}
    return idle(statements) | (alone - statements.ranks(*WAITED))


def _extend(
    record: RankRecord,
    gid: int,
    bounds: Bounds,
    statements: Statements,
    kinds: LoggedCalls,
    counts_sends: bool,
) -> None:
    """Add to a rank's queue what text states beyond it."""
    own = record.queues.get(gid) if record.seen else None
    if own is not None and counts_sends:
        return  # its seqs count sends and receives, too
    before = own.frontier if own is not None else Frontier()
    last = max(before.enqueued or 0, int(own.seq.max(initial=0)) if own is not None else 0)
    told = Frontier() if counts_sends else Frontier(bounds.enqueued, None, bounds.completed)
    calls = {s: e for s, e in sorted(bounds.calls.items()) if s > last}
    further = (told.enqueued or 0) > last or (told.completed or 0) > (before.completed or 0)
    if not calls and not further and (record.seen or told.enqueued is None):
        return
    if own is None:
        own = stated_queue(record.rank, gid, [], [], Frontier())
    completed = _most(told.completed, before.completed)
    state = np.where(own.seq <= (completed or 0), State.DONE, own.state)
    # Else the collective that timed out first was enqueued first, and all after what a dump shows.
    order = np.array([event.line for event in calls.values()], np.int64) + own.order.max(initial=0)
    kind = [kinds.call(gid, seq, event, statements) for seq, event in calls.items()]
    record.queues[gid] = replace(
        own,
        seq=np.concatenate([own.seq, np.array([*calls], np.int64)]),
        kind=np.concatenate([own.kind, np.array(kind, own.kind.dtype)]),
        state=np.concatenate([state, np.full(len(calls), State.PENDING, state.dtype)]),
        created=np.concatenate([own.created, np.zeros(len(calls), np.int64)]),
        order=np.concatenate([own.order, order]),
        frontier=Frontier(_most(told.enqueued, *calls, before.enqueued), None, completed),
    )
    if not record.seen or record.absence is Absence.TOLD:
        record.absence = Absence.TOLD
        record.calls_file = record.calls_file or bounds.events[0].file


def _most(*numbers: int | None) -> int | None:
    """Return the largest of the numbers that are known."""
    return max((n for n in numbers if n is not None), default=None)
