"""How many jobs left their files in one folder, each with ranks from 0, and how many ranks a job has: a trainer and its rollout workers.

    job-17/trainer/nccl_trace_rank_0   job-17/rollout/nccl_trace_rank_0

Two folders are of two worlds where their dumps show it: recorders of one rank that ran at the same time and share no collective, or
default groups with other members. Snapshots of one process share collectives, and those of an earlier job end before the later begin.

A job has at least so many ranks as its inputs state, and at most what inputs of a few ranks make plausible.

One number in one line makes a world of any size, and every rank of it is then a row of every report. Real jobs whose files are
mostly lost have a few ten thousand ranks; a larger size has to be proved by files.

A bare number in a log's name is a rank (`err.12`, `worker-1/app.log`) or a job's number (`err.812345`). A rank is below the size that the
job's dumps and logs state; where they state none, it is one of a row of files, or a small number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace

from hangscope.errors import Note
from hangscope.ingest.evidence.claim import Claim, world_of
from hangscope.ingest.evidence.snapshots import claim_rank
from hangscope.ingest.files.naming import attempt_of, bare_number
from hangscope.ingest.nccl.comm import NcclInit
from hangscope.ingest.nccl.ras_json import NcclRas
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.store import StoreBarrier, StoreTimeout
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
    own, others = (
        set(zip(claim.column("order").tolist(), claim.column("created").tolist(), strict=True))
        for claim in (one, other)
    )
    return own.isdisjoint(others)


def chosen_note(names: Sequence[str], states: Sequence[str], chosen: int) -> Note:
    """Return the note that of several worlds one is analysed; `states` describe each of them."""
    what = "; ".join(f"{name} ({state})" for name, state in zip(names, states, strict=True))
    text = f"{len(names)} jobs of their own lie here, each with ranks from 0: {what}. {names[chosen]} is analysed"
    return Note("several_worlds", text, hint="give the folder of one of them alone to analyze another")


UNPROVED = 2**15  # ranks that a job may have whatever was collected of it
PER_RANK = 256  # ranks that each one with a file or a line of its own makes plausible
_SMALL = 256
_SPARSE = 4  # of four numbers in a row at least one file is there


def left_out(stated: int, evident: int, limit: int) -> Note:
    """Return the note that of the `stated` ranks only those below `limit` are analysed."""
    text = f"the inputs state {stated:,} ranks, of which {evident:,} left something; ranks from {limit:,} on are left out"
    hint = "--world-size takes them all, if the job had so many; else a file is damaged or forged"
    return Note("world_size", text, hint=hint)


def size_in_content(readings: Sequence[Reading]) -> int:
    """Return the size that dumps, stores and communicators state; 0 where none does. Names of files do not count."""
    sizes = [0]
    for reading in readings:
        for recording in reading.recordings:
            sizes += [max(ranks) + 1 for _, ranks in recording.config.values() if ranks]
        for event in reading.all_events:
            if isinstance(event, (StoreTimeout, StoreBarrier, NcclInit, NcclRas)):
                sizes += [n for n in event.least_sizes() if n <= MAX_RANKS]
    return max(sizes)


def without_job_numbers(readings: Sequence[Reading]) -> tuple[list[Reading], set[str]]:
    """Return the readings without ranks that are jobs' numbers, and the files with such names."""
    numbers = {r.file: n for r in readings if (n := bare_number(r.file)) is not None}
    if not numbers:
        return list(readings), set()
    size, files = size_in_content(readings), len(set(numbers.values()))
    limit = max(size, 2 * files if files > 1 else 0) if size else max(_SMALL, _SPARSE * files)
    refused = {file for file, number in numbers.items() if number >= limit}
    kept = []
    for reading in readings:
        log = reading.log
        if reading.file in refused and log.rank == numbers[reading.file]:
            reading = replace(reading, log=replace(log, rank=None))
        kept.append(reading)
    return kept, refused
