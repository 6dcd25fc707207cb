"""The rank map's data: one state per rank, and the map folded to a row per host, or per coordinate of a dimension of the mesh.

Times are those at which each rank entered the collective that it never left, in ms after the first rank of the job.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby

from hangscope.align.waitgraph import Host
from hangscope.model.rankset import compress
from hangscope.report.pictures.topology import Mesh
from hangscope.report.pictures.wait_edges import Drawn
from hangscope.report.schema.pictures import FoldRow, MapFold, RankMapData, StateRow
from hangscope.report.subject import Subject
from hangscope.report.words import HEARD, ROLE_WORDS, ROLES, grouped, some_ranks

ROWS = 24  # above it, alike rows are one


def steps_from_root(subject: Subject, after: Mapping[Drawn, Drawn]) -> dict[int, int]:
    """Return for each waiting rank how many calls are between it and the root; `after` leads from node to node to the root."""
    depth: dict[Drawn, int] = {}
    for start in after:
        path = []
        node: Drawn | None = start
        while node is not None and node not in depth:
            path.append(node)
            node = after.get(node)
        calls = depth[node] if node is not None else 0
        for passed in reversed(path):
            calls += not isinstance(passed, Host)
            depth[passed] = calls
    hosts = {node.rank: calls for node, calls in depth.items() if isinstance(node, Host)}
    return {rank: calls for rank, calls in hosts.items() if calls and rank not in subject.culprits}


def folds(subject: Subject, mesh: Mesh | None, steps: Mapping[int, int]) -> tuple[MapFold, ...]:
    """Return the map folded by host, where more than one is known, and by each dimension of the mesh."""
    since = _since(subject)
    records = sorted(subject.incident.ranks.items())
    by_host = grouped((record.host or "host not known", rank) for rank, record in records)
    found = {"host": by_host} if len(by_host) > 1 else {}
    for name, places in mesh.places.items() if mesh is not None else ():
        ordered = sorted(places, key=lambda r: (places[r], r))
        found[name] = grouped((f"{name}{places[rank]}", rank) for rank in ordered)
    return tuple(MapFold(name, _rows(subject, ranks, steps, since)) for name, ranks in found.items())


def _since(subject: Subject) -> dict[int, float]:
    """Return when each rank stalled, in ms after the first."""
    waiting = (rank for rank in subject.graph.waiting if rank not in subject.culprits)
    calls = ((rank, subject.first_open(rank)) for rank in waiting)
    made = {rank: call.created for rank, call in calls if call is not None and call.created > 0}
    first = min(made.values(), default=0)
    return {rank: (created - first) / 1e6 for rank, created in made.items()}


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
        rows.append(
            FoldRow(
                name=names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1:,} alike",
                ranks=compress(ranks) if len(ranks) <= 64 else some_ranks(ranks),
                count=len(ranks),
                states=tuple(number * len(names) for number in roles),
                near=near * len(names),
                behind=sum(steps.get(rank, 0) > 1 for rank in ranks),
                first_ms=min(times, default=None),
                last_ms=max(times, default=None),
            )
        )
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
        labels["unseen"] = (
            HEARD if len(heard) == len(unseen) else f"{ROLE_WORDS['unseen']}; of some a log or stack"
        )
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
