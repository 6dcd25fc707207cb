"""Several jobs that ran side by side and left their files in one folder, each with ranks from 0: a trainer and its rollout workers.

    job-17/trainer/nccl_trace_rank_0   job-17/rollout/nccl_trace_rank_0

Two folders are of two worlds where their dumps show it: recorders of one rank that ran at the same time and share no collective, or
default groups with other members. Snapshots of one process share collectives, and those of an earlier job end before the later begin.
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
    """What the dumps below one folder show of their world."""

    name: str
    claims: dict[int, Claim] = field(default_factory=dict)
    worlds: set[tuple[int, ...]] = field(default_factory=set)

    @property
    def span(self) -> tuple[int, int]:
        """Return the enqueue times (ns) of the first collective and of the last."""
        known = [claim for claim in self.claims.values() if claim.first_created]
        first = min((claim.first_created for claim in known), default=0)
        return first, max((claim.last_created for claim in known), default=0)


def worlds(readings: Sequence[Reading]) -> dict[str, list[Reading]]:
    """Return the readings of each world by the folders that hold it; one entry where nothing shows two.

    Files outside of these folders may be of any of them, and are left out where there are several worlds.
    """
    apart: list[list[_Folder]] = []
    for one in _folders(readings):
        home = next((world for world in apart if not any(_two_worlds(one, other) for other in world)), None)
        if home is None:
            apart.append([one])
        else:
            home.append(one)
    if len(apart) < 2:
        return {"": list(readings)}
    names = [tuple(sorted(f"{folder.name}/" for folder in world)) for world in apart]
    return {", ".join(those): [r for r in readings if r.file.startswith(those)] for those in names}


def _folders(readings: Sequence[Reading]) -> list[_Folder]:
    """Return the folders at the first level at which the dumps' paths differ."""
    dumps = [(r, rec) for r in readings for rec in r.recordings if rec.source == "flight_recorder"]
    if any(attempt_of(reading.file) is not None for reading, _ in dumps):
        return []  # the folders are of restart attempts, which are distinguished by their names
    paths = [reading.file.split("/")[:-1] for reading, _ in dumps]
    levels = enumerate(zip(*paths, strict=False), 1)
    level = next((level for level, parts in levels if len(set(parts)) > 1), 0)
    names = ["/".join(path[:level]) for path in paths]
    if not level or len(set(names)) > _MOST:
        return []
    found = {name: _Folder(name) for name in sorted(set(names))}
    ignored: list[Note] = []
    for name, (reading, recording) in zip(names, dumps, strict=True):
        claim = claim_rank(reading.file, recording, ignored)
        if claim is not None:
            found[name].claims.setdefault(claim.rank, claim)
            found[name].worlds |= {members} if (members := world_of(recording)) is not None else set()
    return [folder for folder in found.values() if folder.claims]


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
    """Return whether two recordings of one rank, of one backend and one time, have no collective in common."""
    backends = [{kind[1] for kind in claim.recording.kinds} for claim in (one, other)]
    if not backends[0] & backends[1]:
        return False  # two recorders of one process
    if max(one.first_created, other.first_created) > min(one.last_created, other.last_created):
        return False
    return not _collectives(one) & _collectives(other)


def _collectives(claim: Claim) -> set[tuple[int, int]]:
    """Return (running number, enqueue time in ns) of each collective."""
    return set(zip(claim.column("order").tolist(), claim.column("created").tolist(), strict=True))


def chosen_note(names: Sequence[str], states: Sequence[str], chosen: int) -> Note:
    """Return the note that of several worlds one is analysed; `states` describe each of them."""
    what = "; ".join(f"{name} ({state})" for name, state in zip(names, states, strict=True))
    text = f"{len(names)} jobs of their own lie here, each with ranks from 0: {what}. {names[chosen]} is analysed"
    return Note("several_worlds", text, hint="give the folder of one of them alone to analyze another")
