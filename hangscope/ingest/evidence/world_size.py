"""How many ranks a job has: at least what its inputs state, at most what inputs of a few ranks make plausible.

One number in one line makes a world of any size, and every rank of it is then a row of every report. Real jobs whose files are
mostly lost have a few ten thousand ranks; a larger size has to be proved by files.

A bare number in a log's name is a rank (`err.12`, `worker-1/app.log`) or a job's number (`err.812345`). A rank is below the size that the
job's dumps and logs state; where they state none, it is one of a row of files, or a small number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.errors import Note
from hangscope.ingest.files.naming import bare_number
from hangscope.ingest.nccl.comm import NcclInit
from hangscope.ingest.nccl.ras_json import NcclRas
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.store import StoreBarrier, StoreTimeout
from hangscope.ingest.workers.reading import Reading

UNPROVED = 2**15  # ranks that a job may have whatever was collected of it
PER_RANK = 256  # ranks that each one with a file or a line of its own makes plausible
_SMALL = 256
_SPARSE = 4  # of four numbers in a row at least one file is there


def largest_world(evident: int, wanted: int | None) -> int:
    """Return the most ranks that are analysed, where `evident` of them left something and the user wants `wanted`."""
    return max(UNPROVED, PER_RANK * evident, wanted or 0)


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
