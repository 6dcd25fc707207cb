"""The rank map's data: one state per rank, and the map folded to a row per host, or per coordinate of a dimension of the mesh.

The mesh says where each rank is in the dimensions that the job's groups span (`dp3 pp1 tp0`). A role is a dimension where its groups
are of one size and every rank is in exactly one of them; a rank's coordinate is its place in that group. Nothing is inferred from a
group's size alone. Times are those at which each rank entered the collective that it never left, in ms after the first rank of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

from hangscope.align.waitgraph import Host
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import compress, counted
from hangscope.report.pictures.wait_edges import Drawn
from hangscope.report.schema.pictures import Dimension, FoldRow, MapFold, RankMapData, StateRow, TopologyData
from hangscope.report.subject import Subject
from hangscope.report.words import HEARD, ROLE_WORDS, ROLES, grouped, some_ranks

ORDER = ("dp", "fsdp", "pp", "cp", "ep", "tp")
_LABELLED = 1024  # above it the page works out a rank's place from the strides
ROWS = 24  # above it, alike rows are one


@dataclass(frozen=True, slots=True)
class Mesh:
    """The dimensions of a job, and for each its ranks' coordinates."""

    dimensions: tuple[Dimension, ...]
    places: Mapping[str, Mapping[int, int]]

    def label(self, rank: int) -> str:
        """Return a rank's place: `dp3 pp1 tp0`."""
        return " ".join(f"{d.name}{self.places[d.name][rank]}" for d in self.dimensions)

    def shared(self, ranks: Sequence[int]) -> str:
        """Return the coordinates that all of these ranks have, empty where there are none."""
        labels = ({f"{d.name}{self.places[d.name][rank]}" for rank in ranks} for d in self.dimensions)
        return " ".join(found.pop() for found in labels if len(found) == 1)


def mesh_of(subject: Subject) -> Mesh | None:
    """Return the mesh, or None where the groups show fewer than two dimensions."""
    size = subject.incident.world_size
    known = [g for g in subject.incident.groups if g.members_known and 1 < len(g.ranks) < size]
    places: dict[str, dict[int, int]] = {}
    dimensions = []
    for role in ORDER:
        groups = sorted({group.ranks for group in known if group.role == role})
        place = {rank: i for ranks in groups for i, rank in enumerate(ranks)}
        even = len({len(ranks) for ranks in groups}) == 1 and sum(map(len, groups)) == len(place)
        if even and place.keys() == set(range(size)):
            places[role] = place
            stride, members = groups[0][1] - groups[0][0], len(groups[0])
            follows = stride > 0 and all(rank // stride % members == at for rank, at in place.items())
            dimensions.append(Dimension(role, members, stride if follows else None))
    return Mesh(tuple(dimensions), places) if len(dimensions) > 1 else None


def steps_from_root(subject: Subject, after: Mapping[Drawn, Drawn]) -> dict[int, int]:
    """Return for each waiting rank how many calls are between it and the root; `after` leads from node to node to the root, the nearest first."""
    depth: dict[Drawn, int] = {}
    for node, following in after.items():
        beyond = depth.get(following, 0 if isinstance(following, Host) else 1)  # a root has none
        depth[node] = beyond + (not isinstance(node, Host))
    hosts = {node.rank: calls for node, calls in depth.items() if isinstance(node, Host)}
    return {rank: calls for rank, calls in hosts.items() if calls and rank not in subject.culprits}


def folds(subject: Subject, mesh: Mesh | None, steps: Mapping[int, int]) -> tuple[MapFold, ...]:
    """Return the map folded by host, where more than one is known, and by each dimension of the mesh."""
    waiting = (rank for rank in subject.graph.waiting if rank not in subject.culprits)
    calls = ((rank, subject.first_open(rank)) for rank in waiting)
    stalled = {rank: call.created for rank, call in calls if call is not None and call.created > 0}
    first = min(stalled.values(), default=0)
    since = {rank: (created - first) / 1e6 for rank, created in stalled.items()}
    records = sorted(subject.incident.ranks.items())
    by_host = grouped((record.host or "host not known", rank) for rank, record in records)
    found = {"host": by_host} if len(by_host) > 1 else {}
    for name, places in mesh.places.items() if mesh is not None else ():
        ordered = sorted(places, key=lambda r: (places[r], r))
        found[name] = grouped((f"{name}{places[rank]}", rank) for rank in ordered)
    return tuple(MapFold(name, _rows(subject, ranks, steps, since)) for name, ranks in found.items())


def _rows(
    subject: Subject,
    places: Mapping[str, Sequence[int]],
    steps: Mapping[int, int],
    since: Mapping[int, float],
) -> tuple[FoldRow, ...]:
    """Return a row per place; of many, those that look alike and hold no named rank are one."""
    alike: dict[tuple[str, tuple[int, ...], int], list[str]] = defaultdict(list)
    for name, ranks in places.items():
        roles = tuple(sum(subject.role(rank) == role for rank in ranks) for role in ROLES)
        near = sum(steps.get(rank) == 1 for rank in ranks)
        own = name if len(places) <= ROWS or subject.culprits.intersection(ranks) else ""
        alike[own, roles, near].append(name)
    rows = []
    for (_, roles, near), names in alike.items():
        ranks = sorted(rank for name in names for rank in places[name])
        times = [since[rank] for rank in ranks if rank in since]
        several = len(names)
        name = names[0] if several == 1 else f"{names[0]} and {several - 1:,} alike"
        listed = compress(ranks) if len(ranks) <= 64 else some_ranks(ranks)
        states = tuple(number * several for number in roles)
        behind = sum(steps.get(rank, 0) > 1 for rank in ranks)
        ends = min(times, default=None), max(times, default=None)
        rows.append(FoldRow(name, listed, len(ranks), states, near * several, behind, *ends))
    return tuple(rows)


def rank_map(subject: Subject, folded: tuple[MapFold, ...]) -> RankMapData | None:
    """Return the state of every rank and the map's folds, or None for a job without ranks."""
    size, records = subject.incident.world_size, sorted(subject.incident.ranks.items())
    if not size:
        return None
    roles = [subject.role(rank) for rank in range(size)]
    by_role = grouped((role, rank) for rank, role in enumerate(roles))
    waiting, unseen = (by_role.get(role, ()) for role in ("waiting", "unseen"))
    labels = {**ROLE_WORDS, "idle": subject.idle_words, "waiting": subject.waiting_words(waiting)}
    if heard := subject.heard.intersection(unseen):
        of_some = f"{ROLE_WORDS['unseen']}; of some a log or stack"
        labels["unseen"] = HEARD if len(heard) == len(unseen) else of_some
    by_host = grouped((record.host, rank) for rank, record in records if record.host)
    per_host = max(map(len, by_host.values()), default=0)
    is_even = {len(ranks) for ranks in by_host.values()} == {per_host}
    is_even &= [rank for ranks in by_host.values() for rank in ranks] == list(range(size))
    return RankMapData(
        world_size=size,
        per_host=per_host if is_even else min(8, size),
        hosts=tuple(by_host) if is_even else (),
        states=tuple((ROLES.index(role), len(list(run))) for role, run in groupby(roles)),
        legend=tuple(
            StateRow(role, labels[role], len(ranks), some_ranks(ranks, 120))
            for role in ROLES
            if (ranks := by_role.get(role))
        ),
        culprits=tuple(sorted(subject.culprits)),
        folds=folded,
    )


def topology(subject: Subject, mesh: Mesh | None, steps: Mapping[int, int]) -> TopologyData | None:
    """Return what the page shows of a mesh; `steps` says how many calls each waiting rank is from the root."""
    if mesh is None:
        return None
    size = subject.incident.world_size
    labels = tuple(mesh.label(rank) for rank in range(size)) if size <= _LABELLED else ()
    # What the named ranks, and those that wait for them directly, have in common.
    named = sorted(subject.culprits)
    lines = [f"rank {rank} is {mesh.label(rank)}" for rank in named if len(named) == 1]
    if len(named) > 1 and (common := mesh.shared(named)):
        lines.append(f"all named ranks have {common}")
    near = [rank for rank, step in steps.items() if step == 1]
    behind = sum(step > 1 for step in steps.values())
    if near and behind:
        common = mesh.shared(near)
        where = f", all of {common}" if common and len(near) > 1 else ""
        waits = "waits" if len(near) == 1 else "wait"
        lines.append(f"{counted(len(near), 'rank')} {waits} directly{where}; {behind:,} indirectly")
    return TopologyData(mesh.dimensions, labels, tuple(lines))
