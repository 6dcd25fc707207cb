"""The groups of an incident with those that only text names: their members from who printed which group-local rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from hangscope.explain.statements.statements import Statements
from hangscope.model.incident import Group, Incident

#: (global rank, group name)
Key = tuple[int, str]


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
        on_grid: dict[str, tuple[int, ...]] = {}
        for family in families.values():
            on_grid |= _on_a_grid(family, len(world))
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
    sisters = [
        g.ranks for g in incident.groups if g.members_known and (g.desc == desc if desc else g.name == name)
    ]
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
