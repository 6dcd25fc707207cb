"""Several jobs that ran side by side and left their files in one folder, each with ranks from 0: a trainer and its rollout workers.

    job-17/trainer/nccl_trace_rank_0   job-17/rollout/nccl_trace_rank_0

Two folders are of two worlds where their dumps say so: recorders of one rank that ran at the same time and share no call, or
default groups with other members. Snapshots of one process share calls, and those of an earlier job end before the later begin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from hangscope.errors import Note
from hangscope.ingest.evidence.claim import Claim, world_of
from hangscope.ingest.evidence.snapshots import claim_rank
from hangscope.ingest.files.naming import attempt_of
from hangscope.ingest.workers.reading import Reading
from hangscope.model.dataclass import dataclass

_MOST = 8  # folders that are compared


@dataclass(slots=True)
class _Folder:
    """What the dumps below one folder tell of the world that they are of."""

    name: str
    claims: dict[int, Claim] = field(default_factory=dict)
    worlds: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def span(self) -> tuple[int, int]:
        """Return the enqueue times (ns) of the first call and of the last."""
        known = [claim for claim in self.claims.values() if claim.first_created]
        return min((c.first_created for c in known), default=0), max(
            (c.last_created for c in known), default=0
        )


def worlds(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    """Return the readings of each world by the folders that hold it; one entry where nothing tells of two.

    What lies outside of these folders speaks of nobody knows whose ranks, and is left out where there are several worlds.
    """
    folders = _folders(readings)
    if not 1 < len(folders) <= _MOST:
        return {"": list(readings)}
    apart: list[list[_Folder]] = []
    for one in folders.values():
        home = next((world for world in apart if not any(_two_worlds(one, other) for other in world)), None)
        if home is None:
            apart.append([one])
        else:
            home.append(one)
    if len(apart) == 1:
        return {"": list(readings)}
    found: dict[str, list[Reading]] = {}
    for world in apart:
        names = sorted(folder.name for folder in world)
        found[", ".join(f"{name}/" for name in names)] = [
            r for r in readings if any(r.file.startswith(f"{name}/") for name in names)
        ]
    return found


def _folders(readings: Sequence[Reading]) -> dict[str, _Folder]:
    """Return the folders at the first level at which the dumps' paths differ."""
    dumps = [(r, rec) for r in readings for rec in r.recordings if rec.source == "flight_recorder"]
    if any(attempt_of(reading.file) is not None for reading, _ in dumps):
        return {}  # the folders are of restart attempts, which are told apart by their names
    paths = [reading.file.split("/")[:-1] for reading, _ in dumps]
    level = 0
    while paths and all(len(path) > level for path in paths) and len({path[level] for path in paths}) == 1:
        level += 1
    if not all(len(path) > level for path in paths) or len({path[level] for path in paths}) > _MOST:
        return {}
    found: dict[str, _Folder] = {}
    ignored: list[Note] = []
    for path, (reading, recording) in zip(paths, dumps, strict=True):
        claim = claim_rank(reading.file, recording, ignored)
        if claim is None:
            continue
        folder = found.setdefault("/".join(path[: level + 1]), _Folder("/".join(path[: level + 1])))
        folder.claims.setdefault(claim.rank, claim)
        if (members := world_of(recording)) is not None:
            folder.worlds.add(members)
    return dict(sorted(found.items()))


def _two_worlds(one: _Folder, other: _Folder) -> bool:
    begins, ends = zip(one.span, other.span, strict=True)
    if not all(begins) or max(begins) > min(ends):
        return False
    if len(one.worlds) == len(other.worlds) == 1 and one.worlds != other.worlds:
        return True
    both = one.claims.keys() & other.claims.keys()
    unlike = [rank for rank in both if _two_processes(one.claims[rank], other.claims[rank])]
    return bool(both) and 2 * len(unlike) > len(both)


def _two_processes(one: Claim, other: Claim) -> bool:
    """Return whether two recordings of one rank, of one backend and one time, have no call in common."""
    backends = [{kind[1] for kind in claim.recording.kinds} for claim in (one, other)]
    if not backends[0] & backends[1]:
        return False  # two recorders of one process
    if max(one.first_created, other.first_created) > min(one.last_created, other.last_created):
        return False
    calls = [
        set(zip(*(c.column(name).tolist() for name in ("order", "created")), strict=True))
        for c in (one, other)
    ]
    return not calls[0] & calls[1]


def chosen_note(names: Sequence[str], told: Sequence[str], chosen: int) -> Note:
    """Return the note that of several worlds one is analysed; `told` says of each how it fares."""
    what = "; ".join(f"{name} ({how})" for name, how in zip(names, told, strict=True))
    return Note(
        "several_worlds",
        f"{len(names)} jobs of their own lie here, each with ranks from 0: {what}. {names[chosen]} is analysed",
        hint="give the folder of one of them alone to analyze another",
    )
