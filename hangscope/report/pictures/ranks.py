"""The rank map's data: one state per rank."""

from __future__ import annotations

from itertools import groupby

from hangscope.report.schema.pictures import MapFold, RankMapData, StateRow
from hangscope.report.subject import Subject
from hangscope.report.words import ROLE_WORDS, ROLES, grouped, some_ranks


def rank_map(subject: Subject, folded: tuple[MapFold, ...]) -> RankMapData | None:
    """Return the state of every rank and the map's folds, or None of a job without ranks."""
    size, records = subject.incident.world_size, sorted(subject.incident.ranks.items())
    if not size:
        return None
    roles = [subject.role(rank) for rank in range(size)]
    by_role = grouped((role, rank) for rank, role in enumerate(roles))
    labels = {**ROLE_WORDS, "waiting": "waited"} if subject.over else ROLE_WORDS
    by_host = grouped((record.host, rank) for rank, record in records if record.host)
    per_host = max(map(len, by_host.values()), default=0)
    is_even = [rank for ranks in by_host.values() for rank in ranks] == list(range(size)) and all(
        len(ranks) == per_host for ranks in by_host.values()
    )
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
