"""The rank map's data: one state per rank."""

from __future__ import annotations

from collections import Counter

from hangscope.report.schema.pictures import MapFold, RankMapData, StateLegend
from hangscope.report.subject import Subject
from hangscope.report.words import ROLE_WORDS, ROLES


def rank_map(subject: Subject, folded: tuple[MapFold, ...]) -> RankMapData | None:
    """Return the state of every rank and the map's folds, or None of a job without ranks."""
    incident = subject.incident
    if not incident.world_size:
        return None
    runs: list[list[int]] = []
    for rank in range(incident.world_size):
        state = ROLES.index(subject.role(rank))
        if runs and runs[-1][0] == state:
            runs[-1][1] += 1
        else:
            runs.append([state, 1])
    present = {state for state, _ in runs}
    hosts = list(dict.fromkeys(r.host for _, r in sorted(incident.ranks.items()) if r.host))
    ranks_on = Counter(r.host for r in incident.ranks.values())
    counts = [ranks_on[h] for h in hosts]
    even = (
        bool(counts)
        and len(set(counts)) == 1
        and sum(counts) == incident.world_size
        and all(record.host == hosts[rank // counts[0]] for rank, record in incident.ranks.items())
    )
    return RankMapData(
        world_size=incident.world_size,
        per_host=counts[0] if even else min(8, incident.world_size),
        hosts=tuple(hosts) if even else (),
        states=tuple((state, count) for state, count in runs),
        legend=tuple(
            StateLegend(i, "waited" if subject.over and role == "waiting" else ROLE_WORDS[role], role)
            for i, role in enumerate(ROLES)
            if i in present
        ),
        culprits=tuple(sorted(subject.culprits)),
        folds=folded,
    )
