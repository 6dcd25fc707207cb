"""The mesh of a job: which dimensions its groups span, and where in it a rank stands (`dp3 pp1 tp0`).

A role is a dimension where its groups are of one size and every rank is in exactly one of them; a rank's coordinate is its
place in that group. Nothing is inferred from a group's size alone.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from hangscope.report.page_data import Dimension, TopologyData
from hangscope.report.subject import Subject

ORDER = ("dp", "fsdp", "pp", "cp", "ep", "tp")


def topology(subject: Subject) -> TopologyData | None:
    """Return the mesh, or None where the groups show fewer than two dimensions."""
    size = subject.incident.world_size
    by_role: dict[str, list[tuple[int, ...]]] = defaultdict(list)
    for group in subject.incident.groups:
        if group.role in ORDER and group.members_known and 1 < len(group.ranks) < size:
            by_role[group.role].append(group.ranks)
    places: dict[str, dict[int, int]] = {}
    dimensions = []
    for role in ORDER:
        groups = sorted(set(by_role.get(role, ())))
        place = {rank: i for ranks in groups for i, rank in enumerate(ranks)}
        if len({len(ranks) for ranks in groups}) == 1 and sum(map(len, groups)) == len(place) == size:
            places[role] = place
            dimensions.append(Dimension(role, len(groups[0])))
    if len(dimensions) < 2:
        return None
    labels = tuple(" ".join(f"{d.name}{places[d.name][rank]}" for d in dimensions) for rank in range(size))
    return TopologyData(
        tuple(dimensions), labels if size <= 1024 else (), _spread(subject, dimensions, places)
    )


def _spread(
    subject: Subject, dimensions: list[Dimension], places: dict[str, dict[int, int]]
) -> tuple[str, ...]:
    """Return in which coordinates the named ranks stand together: what they share points at what failed."""
    named = sorted(subject.culprits)
    lines = []
    for dimension in dimensions if named else ():
        found = Counter(places[dimension.name][rank] for rank in named)
        if len(found) == 1 and len(named) > 1:
            lines.append(f"all named ranks have {dimension.name}{next(iter(found))}")
    return tuple(lines)
