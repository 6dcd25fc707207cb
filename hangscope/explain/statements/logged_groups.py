"""The groups of an incident with those that only text names: their members from who printed which group-local rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.torch_logs.c10d import DumpObserved, DumpSignal, WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.model.incident import Group, Incident

#: (global rank, group name)
Key = tuple[int, str]


class LoggedGroups:
    """The groups of an incident with those that only text names."""

    def __init__(self, incident: Incident, statements: Statements, table: Iterable[Key]) -> None:
        self.all = list(incident.groups)
        self._by_name: dict[str, list[Group]] = defaultdict(list)
        self._sets: dict[int, tuple[tuple[int, ...], frozenset[int]]] = {}
        for group in incident.groups:
            self._by_name[group.name].append(group)
        told: dict[str, dict[int, int]] = defaultdict(dict)
        descs: dict[str, str] = {}
        lines: list[GroupEvent] = [*statements.all(WatchdogStatus), *statements.all(WatchdogTimeout)]
        for event in [*lines, *statements.all(DumpSignal), *statements.all(DumpObserved)]:
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

    def _members(self, group: Group) -> frozenset[int]:
        ranks, members = self._sets.get(group.gid, ((), frozenset()))
        if ranks is not group.ranks:
            members = frozenset(group.ranks)
            self._sets[group.gid] = group.ranks, members
        return members

    def gid(self, key: Key) -> int | None:
        """Return the one group of a name that a rank is in, or None."""
        rank, name = key
        fitting = [g for g in self._by_name[name] if rank in self._members(g)]
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
