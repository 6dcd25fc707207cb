"""What lines of text state about how far a rank came in a group, put into one table with what dumps recorded.

A watchdog's timeout states that a rank is in a call (op, seq, sizes) and has enqueued at least that many; a status or dump
signal states the last enqueued and completed call; a printed prefix states which group-local rank a global one is. They
are bounds as much as a dump's own counters are, so they go into the same queues: the frontiers, the wait-for graph and the
comparison of calls do not ask where a bound came from. What a dump tells further than a line is kept, and the reverse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.events import Event
from hangscope.explain.facts import Facts
from hangscope.incident import Absence, CallKind, Frontier, Group, Incident, Queue, RankRecord, State
from hangscope.ingest.torch_logs.c10d import DumpObserved, DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.store import StoreTimeout
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout

_POINT_TO_POINT = frozenset({"send", "recv", "recv_any_source"})
_UNKNOWN_OPS = frozenset({"coalesced", ""})  # a batch, whose calls the line does not tell
#: Ops whose line counts other tensors than the recorder keeps: only what goes in is compared.
_LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


@dataclass(slots=True)
class Bounds:
    """What text states of one rank in one group: the calls it is in by seq, and its last enqueued and completed seq."""

    calls: dict[int, WatchdogTimeout] = field(default_factory=dict)
    sends: dict[int, WatchdogTimeout] = field(default_factory=dict)
    enqueued: int | None = None
    completed: int | None = None
    events: list[Event] = field(default_factory=list)


#: (global rank, group name)
Key = tuple[int, str]


def stated(incident: Incident, facts: Facts) -> dict[Key, Bounds]:
    """Return the bounds that the lines of c10d and its watchdog state, by rank and the name of the group."""
    table: dict[Key, Bounds] = defaultdict(Bounds)
    named: dict[int, dict[int, str]] = defaultdict(dict)
    signals: list[WatchdogStatus | DumpSignal] = [*facts.all(WatchdogStatus), *facts.all(DumpSignal)]
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
    for event in facts.all(WatchdogTimeout):
        seq, rank = event.seq, event.rank
        if rank is None or seq is None:
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


def joined(incident: Incident, facts: Facts) -> Incident:
    """Return the incident with what text states of its ranks beyond their dumps; the given one is not changed."""
    table = stated(incident, facts)
    if not table:
        return incident
    groups = _Groups(incident, facts, table)
    kinds = _Kinds(incident)
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
        _extend(record, gid, bounds, facts, kinds, gid in counts_sends)
    return replace(incident, ranks=ranks, groups=groups.all, kinds=incident.kinds.and_also(kinds.added))


def behind(facts: Facts, waiting: Iterable[int], culprits: Iterable[int]) -> list[Event]:
    """Return the lines that state who waits (of the first few) and how far the culprits came, or that they were idle."""
    lines: list[Event] = [e for r in list(waiting)[:3] for e in facts.of(r, WatchdogTimeout)[:1]]
    for rank in list(culprits)[:4]:
        lines += [*facts.of(rank, WatchdogTimeout), *facts.of(rank, DumpObserved)][:1]
        lines += [*facts.of(rank, WatchdogStatus), *facts.of(rank, DumpSignal)][:1]
    return lines[:8]


def overdue(incident: Incident, facts: Facts) -> frozenset[int]:
    """Return the ranks without a dump of which a line says that they waited: for a call, or for others to join a group."""
    late = {e.rank for e in facts.all(WatchdogTimeout, GlooTimeout, GlooClosed, StoreTimeout)}
    return frozenset(r for r in late if r in incident.ranks and incident.ranks[r].dump_file is None)


def idle(facts: Facts) -> frozenset[int]:
    """Return the ranks that had nothing overdue when others timed out: alive, and in no call since long enough."""
    late = {e.rank for e in facts.all(WatchdogTimeout, GlooTimeout, GlooClosed)}
    return frozenset(e.rank for e in facts.all(DumpObserved) if e.rank is not None and e.rank not in late)


def _extend(
    record: RankRecord, gid: int, bounds: Bounds, facts: Facts, kinds: _Kinds, counts_sends: bool
) -> None:
    """Add to a rank's queue what text states beyond it."""
    if bounds.sends and gid not in record.p2p and record.dump_file is None:
        seqs = sorted(bounds.sends)
        of = [kinds.send(bounds.sends[s]) for s in seqs]
        record.p2p[gid] = _queue(record.rank, gid, seqs, of, [bounds.sends[n].line for n in seqs], Frontier())
    own = record.queues.get(gid) if record.seen else None
    frontier = own.frontier if own is not None else Frontier()
    last = max(frontier.enqueued or 0, int(own.seq.max()) if own is not None and len(own) else 0)
    told = Frontier() if counts_sends else Frontier(bounds.enqueued, None, bounds.completed)
    seqs = [seq for seq, event in sorted(bounds.calls.items()) if seq > last and event.op not in _UNKNOWN_OPS]
    further = (told.enqueued or 0) > last or (told.completed or 0) > (frontier.completed or 0)
    if record.seen and not seqs and not further:
        return
    if own is not None and record.dump_file is not None:
        if counts_sends or not (further or seqs):
            return
        # The dump was taken before the line was printed: what it shows is kept, and its frontier is the line's.
        record.queues[gid] = _continued(own, told, seqs, [kinds.call(gid, s, bounds, facts) for s in seqs])
        return
    if not seqs and told.enqueued is None:
        return
    of = [kinds.call(gid, s, bounds, facts) for s in seqs]
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


class _Groups:
    """The groups of an incident with those that only text names."""

    def __init__(self, incident: Incident, facts: Facts, table: Iterable[Key]) -> None:
        self.all = list(incident.groups)
        self._by_name: dict[str, list[Group]] = defaultdict(list)
        for group in incident.groups:
            self._by_name[group.name].append(group)
        told: dict[str, dict[int, int]] = defaultdict(dict)
        descs: dict[str, str] = {}
        for event in (
            *facts.all(WatchdogStatus),
            *facts.all(WatchdogTimeout),
            *facts.all(DumpSignal),
            *facts.all(DumpObserved),
        ):
            name = event.group_name
            if name and event.rank is not None:
                descs.setdefault(name, event.group_desc or "")
                if event.group_rank is not None:
                    told[name].setdefault(event.group_rank, event.rank)
        wanted: dict[str, set[int]] = defaultdict(set)
        for rank, name in table:
            wanted[name].add(rank)
        new = sorted(n for n in wanted if not any(wanted[n] <= set(g.ranks) for g in self._by_name[n]))
        world = tuple(sorted(incident.ranks))
        for name in new:
            desc = descs.get(name, "")
            default = desc == "default_pg" or (name == "0" and not desc) or (name == "" and not self.all)
            members = world if default else tuple(sorted(wanted[name] | set(told[name].values())))
            group = Group(len(self.all), name, desc, members, members_known=default, partial=not default)
            self.all.append(group)
            self._by_name[name].append(group)
        families: dict[str, list[str]] = defaultdict(list)
        for name in new:
            if not self._by_name[name][-1].members_known:
                families[descs.get(name, "")].append(name)
        for names in families.values():
            for name, ranks in _on_a_grid({n: told[n] for n in names}, len(world)).items():
                group = self._by_name[name][-1]
                if set(group.ranks) <= set(ranks):
                    self.all[group.gid] = self._by_name[name][-1] = replace(group, ranks=ranks)

    def gid(self, key: Key) -> int | None:
        """Return the one group of a name that a rank is in, or None."""
        rank, name = key
        fitting = [g for g in self._by_name[name] if rank in g.ranks]
        return fitting[0].gid if len(fitting) == 1 else None


def _on_a_grid(printed: dict[str, dict[int, int]], world_size: int) -> dict[str, tuple[int, ...]]:
    """Return the members of the groups of one dimension of a mesh, from who printed which group-local rank.

    `printed`: group name -> group-local rank -> global rank. All groups of a dimension have one size, which divides the
    world, and one stride; the smallest size that fits is taken. Groups whose numbers lie on no grid are left out.
    """
    strides = set()
    for pairs in printed.values():
        known = sorted(pairs.items())
        if len(known) > 1:
            (low, first), (high, last) = known[0], known[-1]
            stride, rest = divmod(last - first, high - low)
            fits = all(rank == first + (local - low) * stride for local, rank in known)
            strides.add(stride if fits and not rest else 0)
        elif known and known[0][0] == known[0][1] > 0:
            strides.add(1)
    if len(strides) != 1 or (stride := strides.pop()) < 1:
        return {}
    least = max(local for pairs in printed.values() for local in pairs) + 1
    size = next((n for n in range(least, world_size + 1) if world_size % n == 0), 0)
    found = {}
    for name, pairs in printed.items():
        local, rank = next(iter(pairs.items()))
        base = rank - local * stride
        if size and base >= 0 and base + (size - 1) * stride < world_size:
            found[name] = tuple(base + n * stride for n in range(size))
    return found


class _Kinds:
    """The call kinds of an incident with those that only text tells."""

    def __init__(self, incident: Incident) -> None:
        self.added: list[CallKind] = []
        self._incident = incident
        self._index: dict[CallKind, int] = {}

    def _add(self, kind: CallKind) -> int:
        if kind not in self._index:
            self._index[kind] = len(self._incident.kinds) + len(self.added)
            self.added.append(kind)
        return self._index[kind]

    def send(self, event: WatchdogTimeout) -> int:
        """Return the kind of a send or receive whose peer its line does not tell."""
        return self._add(CallKind(event.op, "nccl", src=-1, dst=-1))

    def call(self, gid: int, seq: int, bounds: Bounds, facts: Facts) -> int:
        """Return the kind of a stated call: the one that a dump shows there, where the line can mean that one."""
        event = bounds.calls[seq]
        sizes = tuple((n,) for n in (event.numel_in,) if isinstance(n, int))
        outs = tuple((n,) for n in (event.numel_out,) if isinstance(n, int))
        stack = (
            next((e.frames for e in facts.of(event.rank, FailedStack)), ()) if event.rank is not None else ()
        )
        said = CallKind(event.op, "nccl", sizes, outs, stack=stack, told=True)
        kinds = self._incident.kinds
        fitting = [k for k in self._recorded(gid) if means(said, kinds[k])]
        if len(fitting) == 1 and not stack:
            return fitting[0]  # the only call of this group's program that the line can mean
        for k in self._recorded(gid, seq):
            if means(said, kinds[k]):
                return self._add(replace(kinds[k], stack=stack, told=True))
        return self._add(said)

    def _recorded(self, gid: int, seq: int | None = None) -> list[int]:
        """Return the kinds of call that dumps show on a group, or at one seq of it."""
        found: dict[int, None] = {}
        seen: set[int] = set()
        incident = self._incident
        for rank in incident.groups[gid].ranks if gid < len(incident.groups) else ():
            queue = incident.ranks[rank].queues.get(gid) if rank in incident.ranks else None
            if queue is None or not len(queue):
                continue
            if seq is None:
                if id(queue.kind) not in seen:  # ranks of one role share their columns
                    seen.add(id(queue.kind))
                    found.update(dict.fromkeys(sorted(set(queue.kind.tolist()))))
                continue
            row = int(np.searchsorted(queue.seq, seq))
            if row < len(queue) and int(queue.seq[row]) == seq:
                found[int(queue.kind[row])] = None
        return sorted(found)


def means(said: CallKind, recorded: CallKind) -> bool:
    """Return whether a line can mean a recorded call: the same op and as many elements, as far as the line counts them.

    A barrier is printed as an ALLREDUCE of one element.
    """
    if recorded.op == "barrier":
        return said.op in ("barrier", "all_reduce") and sum(numel(said.input_sizes)) <= 1
    if said.op != recorded.op:
        return False
    if not said.input_sizes or not recorded.input_sizes:
        return True
    same_in = sum(numel(said.input_sizes)) == sum(numel(recorded.input_sizes))
    same_out = not said.output_sizes or sum(numel(said.output_sizes)) == sum(numel(recorded.output_sizes))
    return same_in and (same_out or said.op in _LISTS)
