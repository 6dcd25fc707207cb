"""The mesh of a job: which dimensions its groups span, and where each rank is in it (`dp3 pp1 tp0`).

A role is a dimension where its groups are of one size and every rank is in exactly one of them; a rank's coordinate is its
place in that group. Nothing is inferred from a group's size alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import counted
from hangscope.report.schema.pictures import Dimension, TopologyData
from hangscope.report.subject import Subject

ORDER = ("dp", "fsdp", "pp", "cp", "ep", "tp")
_LABELLED = 1024  # above it the page works out a rank's place from the strides


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
            dimensions.append(Dimension(role, len(groups[0]), _stride(groups, place)))
    return Mesh(tuple(dimensions), places) if len(dimensions) > 1 else None


def _stride(groups: list[tuple[int, ...]], place: Mapping[int, int]) -> int | None:
    """Return how far apart neighbours of a dimension are, None if a rank's coordinate does not follow from its number."""
    stride, size = groups[0][1] - groups[0][0], len(groups[0])
    follows = stride > 0 and all(rank // stride % size == at for rank, at in place.items())
    return stride if follows else None


def topology(subject: Subject, mesh: Mesh | None, steps: Mapping[int, int]) -> TopologyData | None:
    """Return what the page shows of a mesh; `steps` says how many calls each waiting rank is from the root."""
    if mesh is None:
        return None
    size = subject.incident.world_size
    labels = tuple(mesh.label(rank) for rank in range(size)) if size <= _LABELLED else ()
    return TopologyData(mesh.dimensions, labels, _spread(subject, mesh, steps))


def _spread(subject: Subject, mesh: Mesh, steps: Mapping[int, int]) -> tuple[str, ...]:
    """Return which coordinates the named ranks, and those that wait for them directly, have in common."""
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
    return tuple(lines)
