"""The groups and collectives that log lines state, matched with those of dumps where a line can mean one of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from hangscope.align.matching import numel
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import FailedStack
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.model.incident import CallKind, Frontier, Group, Incident, Queue, Sizes, State

#: (global rank, group name)
Key = tuple[int, str]
#: What reports the collective that a rank was in when it gave up.
InCall = WatchdogTimeout | AsyncError
#: Ops whose line counts other tensors than the recorder keeps: only the inputs are compared.
_LISTS = frozenset({"all_gather", "reduce_scatter", "gather", "scatter", "all_to_all"})


def stated_queue(rank: int, gid: int, seqs: list[int], kinds: list[int], frontier: Frontier) -> Queue:
    """Return a rank's queue of collectives that only text or a stack shows: pending, and without times."""
    seq, kind, none = np.array(seqs, np.int64), np.array(kinds, np.int64), np.zeros(len(seqs), np.int64)
    state = none + State.PENDING
    return Queue(rank, gid, seq, kind, state, none, none, frontier, pending_only=True, told=True)


class LoggedCalls:
    """The call kinds of an incident with those that only text reports."""

    def __init__(self, incident: Incident) -> None:
        self.added: list[CallKind] = []
        self._incident = incident
        self._index: dict[CallKind, int] = {}

    def _add(self, kind: CallKind) -> int:
        if kind not in self._index:
            self._index[kind] = len(self._incident.kinds) + len(self.added)
            self.added.append(kind)
        return self._index[kind]

    def call(self, gid: int, seq: int, event: InCall, statements: Statements) -> int:
        """Return the kind of a stated collective: the one that a dump shows there, where the line can mean that one."""
        sizes, outs = (((n,),) if n is not None else () for n in (event.numel_in, event.numel_out))
        shown = statements.of(event.rank, FailedStack) if event.rank is not None else []
        stack = shown[0].frames if shown else ()
        said = CallKind(event.op, "nccl", sizes, outs, stack=stack, told=True)
        incident, kinds = self._incident, self._incident.kinds
        members = incident.groups[gid].ranks if gid < len(incident.groups) else ()
        queues = [q for rank in members if (q := incident.ranks[rank].queues.get(gid)) is not None]
        columns = {id(queue.kind): queue.kind for queue in queues}.values()  # ranks of one role share theirs
        issued = {int(kind) for column in columns for kind in np.unique(column)}
        fitting = [kind for kind in issued if means(said, kinds[kind])]
        if len(fitting) == 1 and not stack:
            return fitting[0]  # the only collective of this group's program that the line can mean
        rows = ((queue, int(np.searchsorted(queue.seq, seq))) for queue in queues)
        shown_at = (int(q.kind[row]) for q, row in rows if row < len(q) and q.seq[row] == seq)
        here = Counter(kind for kind in shown_at if kind in fitting)
        if here:  # of collectives that differ in what no line shows, the one that most ranks issued
            usual = min(here, key=lambda k: (-here[k], k))
            return self._add(replace(kinds[usual], stack=stack, told=True))
        return self._add(said)


def means(said: CallKind, recorded: CallKind) -> bool:
    """Return whether a line can mean a recorded collective: the same op and as many elements, as far as the line counts them."""
    if recorded.op == "barrier":
        return said.op in ("barrier", "all_reduce") and sum(numel(said.input_sizes)) <= 1

    def equal(one: Sizes, other: Sizes) -> bool:
        return not one or not other or sum(numel(one)) == sum(numel(other))

    outs = said.op in _LISTS or equal(said.output_sizes, recorded.output_sizes)
    return said.op == recorded.op and equal(said.input_sizes, recorded.input_sizes) and outs


def with_refused(incident: Incident, statements: Statements) -> Incident:
    """Return the incident with the collectives of which dumps hold the line alone, where every rank that came to one reports what it was.

    DETAIL stops a collective that does not match its peers'; the ranks' own fingerprints say what it was. Where one is missing,
    none is filled in: a known and an unknown collective would look like two different ones.
    """
    stopped: dict[tuple[int, int], list[int]] = defaultdict(list)
    for rank, record in incident.ranks.items():
        for gid, queue in record.queues.items():
            if len(queue) and not incident.kinds.without_sizes(int(queue.kind[-1])).op:
                stopped[gid, int(queue.seq[-1])].append(rank)
    added: list[CallKind] = []
    ranks = dict(incident.ranks)
    for (gid, seq), came in sorted(stopped.items()):
        own = [next((e for e in statements.of(r, CallFingerprint) if e.seq == seq), None) for r in came]
        events = [event for event in own if event is not None]
        for rank, event in zip(came, events, strict=True) if len(events) == len(own) else ():
            queue = ranks[rank].queues[gid]
            sizes = (event.shape,) if event.shape is not None else ()
            types = (event.dtype,) if event.dtype else ()
            kind = incident.kinds[int(queue.kind[-1])]
            kind = replace(kind, op=event.op, input_sizes=sizes, input_dtypes=types)
            if event.op == "all_reduce":  # in place; of other ops a fingerprint does not show the outputs
                kind = replace(kind, output_sizes=sizes, output_dtypes=types)
            column = queue.kind.copy()
            column[-1] = len(incident.kinds) + len(added)
            added.append(kind)
            queues = {**ranks[rank].queues, gid: replace(queue, kind=column)}
            ranks[rank] = replace(ranks[rank], queues=queues)
    return replace(incident, ranks=ranks, kinds=incident.kinds.and_also(added)) if added else incident


class LoggedGroups:
    """The groups of an incident with those that only text names."""

    def __init__(self, incident: Incident, statements: Statements, table: Iterable[Key]) -> None:
        descs, printed = statements.group_ranks.descs, statements.group_ranks.printed
        wanted: dict[str, set[int]] = defaultdict(set)
        for rank, name in table:
            wanted[name].add(rank)
        known: dict[str, list[frozenset[int]]] = defaultdict(list)
        for group in incident.groups:
            known[group.name].append(frozenset(group.ranks))
        world = tuple(sorted(incident.ranks))
        self.all = list(incident.groups)
        families: dict[str, dict[str, dict[int, int]]] = defaultdict(dict)
        for name in sorted(n for n, ranks in wanted.items() if not any(ranks <= own for own in known[n])):
            desc = descs.get(name, "")
            if cells := _beside(incident, name, desc, wanted[name].difference(*known[name])):
                self.all += [Group(len(self.all) + n, name, desc, cell) for n, cell in enumerate(cells)]
                continue
            default = desc == "default_pg" or (name == "0" and not desc) or (name == "" and not self.all)
            members = world if default else tuple(sorted(wanted[name].union(printed(name).values())))
            self.all.append(Group(len(self.all), name, desc, members, default, partial=not default))
            if not default:
                families[desc][name] = printed(name)
        grids = [_on_a_grid(family, len(world)) for family in families.values()]
        on_grid = {name: ranks for grid in grids for name, ranks in grid.items()}
        for group in self.all[len(incident.groups) :]:
            if set(group.ranks) <= set(on_grid.get(group.name, ())):
                self.all[group.gid] = replace(group, ranks=on_grid[group.name])
        self._by_name: dict[str, list[tuple[int, frozenset[int]]]] = defaultdict(list)
        for group in self.all:
            self._by_name[group.name].append((group.gid, frozenset(group.ranks)))

    def gid(self, key: Key) -> int | None:
        """Return the one group of a name that a rank is in, or None."""
        rank, name = key
        fitting = [gid for gid, members in self._by_name[name] if rank in members]
        return fitting[0] if len(fitting) == 1 else None


def _beside(incident: Incident, name: str, desc: str, ranks: Iterable[int]) -> list[tuple[int, ...]]:
    """Return the groups of some ranks in a dimension of a mesh, of which dumps list other groups; none where these have no one layout.

    Groups of one dimension have one size and one stride, and partition the world in blocks of size * stride.
    """
    alike = (g for g in incident.groups if (g.desc == desc if desc else g.name == name))
    sisters = [group.ranks for group in alike if group.members_known]
    shapes = {(len(own), own[1] - own[0]) for own in sisters if len(own) > 1}
    if len(shapes) != 1:
        return []
    size, stride = shapes.pop()

    def cell(rank: int) -> tuple[int, ...]:
        base = rank - rank % (size * stride) + rank % stride
        return tuple(range(base, base + size * stride, stride))

    cells = sorted({cell(rank) for rank in ranks})
    regular = stride > 0 and all(cell(own[0]) == own for own in sisters) and not {*cells} & {*sisters}
    return cells if regular and all(own[-1] < len(incident.ranks) for own in cells) else []


def _on_a_grid(printed: dict[str, dict[int, int]], world_size: int) -> dict[str, tuple[int, ...]]:
    """Return the members of the groups of one dimension of a mesh, from who printed which group-local rank.

    `printed`: group name -> group-local rank -> global rank. All groups of a dimension have one size, which divides the
    world, and one stride; the smallest size that fits is taken. Groups whose numbers lie on no grid, or are not printed, are left out.
    """
    printed = {name: pairs for name, pairs in printed.items() if pairs}
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
