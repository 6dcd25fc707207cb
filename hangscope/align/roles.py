"""Which ranks should run the same program: their groups by kind, and their place in the groups that carry sends and receives."""

from __future__ import annotations

from collections import defaultdict

from hangscope.model.incident import Group, Incident

GroupKind = tuple[int, int, str]  #: size, stride and description: a group without its name
Role = tuple[tuple[tuple[GroupKind, int], ...], tuple[GroupKind, ...]]


def kind_of_group(group: Group) -> GroupKind:
    """Return what a group is apart from its name and members; of one whose members nobody recorded only the description."""
    if not group.members_known or group.partial:
        return (0, 0, group.desc)
    ranks = group.ranks
    return (len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 0, group.desc)


def roles(incident: Incident, ranks: list[int]) -> dict[Role, list[int]]:
    """Return the ranks of each role, ascending.

    Only groups that carry sends and receives (pipelines) give their members different programs. The position in a tensor or
    data group does not, and counting it would leave nearly every rank alone in its role. Where nobody recorded a group's members,
    those seen in it have a role apart from the others, who may have no part in it.
    """
    piped = {kind_of_group(incident.groups[gid]) for record in incident.ranks.values() for gid in record.p2p}
    places: dict[int, list[tuple[GroupKind, int]]] = defaultdict(list)
    for group in incident.groups:
        kind = kind_of_group(group)
        for place, rank in enumerate(group.ranks):
            places[rank].append((kind, place if kind[0] else 0))
    found: dict[Role, list[int]] = defaultdict(list)
    for rank in ranks:
        stages = tuple(sorted(one for one in places[rank] if one[0] in piped))
        found[stages, tuple(sorted(kind for kind, _ in places[rank]))].append(rank)
    return dict(found)
