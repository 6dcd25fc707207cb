"""Which ranks should run the same program: their groups by kind, and their place in the groups that carry sends and receives."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from hangscope.model.incident import Group, Incident
from hangscope.model.regex import regex

_NUMBER = regex(r"\d{1,9}")

#: Size, stride and description, and which of a rank's groups with these it is.
GroupKind = tuple[int, int, str, int]
Role = tuple[tuple[tuple[GroupKind, int], ...], tuple[GroupKind, ...]]


def group_kinds(groups: Sequence[Group]) -> list[GroupKind]:
    """Return what each group is apart from its name and members, by gid: of groups that look alike, a rank is in one of each dimension, in order."""
    of_rank: Counter[tuple[int, tuple[int, int, str]]] = Counter()
    kinds = []
    for group in groups:
        alike = _shape(group)
        number = max((of_rank[rank, alike] for rank in group.ranks), default=0)
        for rank in group.ranks:
            of_rank[rank, alike] = number + 1
        kinds.append((*alike, number))
    return kinds


def _shape(group: Group) -> tuple[int, int, str]:
    """Return size, stride and description without numbers, as in `ep_2`; of a group whose members nobody recorded only the latter."""
    desc = _NUMBER.sub("#", group.desc)
    if not group.members_known or group.partial:
        return (0, 0, desc)
    ranks = group.ranks
    return (len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 0, desc)


def roles(incident: Incident, ranks: list[int], kinds: Sequence[GroupKind]) -> dict[Role, list[int]]:
    """Return the ranks of each role, ascending.

    Only groups that carry sends and receives (pipelines) give their members different programs. The position in a tensor or
    data group does not, and counting it would leave nearly every rank alone in its role. Where nobody recorded a group's members,
    those seen in it have a role apart from the others, who may have no part in it.
    """
    piped = {kinds[gid] for record in incident.ranks.values() for gid in record.p2p}
    places: dict[int, list[tuple[GroupKind, int]]] = defaultdict(list)
    for kind, group in zip(kinds, incident.groups, strict=True):
        for place, rank in enumerate(group.ranks):
            places[rank].append((kind, place if kind[0] else 0))
    found: dict[Role, list[int]] = defaultdict(list)
    for rank in ranks:
        stages = tuple(sorted(one for one in places[rank] if one[0] in piped))
        found[stages, tuple(sorted(kind for kind, _ in places[rank]))].append(rank)
    return dict(found)
