"""Logs whose names have a bare number: a rank in `err.12` and `worker-1/app.log`, a job's number in `err.812345`.

The name alone does not tell them apart. A rank is below the size that the job's dumps and logs tell; where they tell
none, it is one of a row of files, or a small number. Of folders only a whole row, one for each rank of the job, is of ranks.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.evidence.told_size import size_in_content
from hangscope.ingest.files.naming import bare_number
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.ingest.workers.reading import Reading

_SMALL = 256
_SPARSE = 4  # of four numbers in a row at least one file is there
_NUMBER = re.compile(r"\d{1,7}")


def without_job_numbers(readings: Sequence[Reading]) -> tuple[list[Reading], set[str]]:
    """Return the readings with what was put to an impossible rank put to none, and the files of such names."""
    numbers = {r.file: n for r in readings if (n := bare_number(r.file)) is not None}
    if not numbers:
        return list(readings), set()
    size, files = size_in_content(readings), len(set(numbers.values()))
    limit = max(size, 2 * files if files > 1 else 0) if size else max(_SMALL, _SPARSE * files)
    refused = {file: number for file, number in numbers.items() if number >= limit}
    return [
        replace(r, log=_without(r.log, refused[r.file])) if r.log is not None and r.file in refused else r
        for r in readings
    ], set(refused)


def with_those_of_a_row(readings: Sequence[Reading]) -> list[Reading]:
    """Return the readings with the ranks of logs whose paths differ in one number alone, which counts once through the job's ranks.

    Where a line names a rank, or a launcher speaks, that tells whose a log is, and not its number.
    """
    size = size_in_content(readings)
    rows: dict[tuple[str, str], dict[int, str]] = defaultdict(dict)
    for reading in readings if size > 1 else ():
        if reading.log is not None and _of_no_rank(reading.log):
            for found in _NUMBER.finditer(reading.file):
                around = reading.file[: found.start()], reading.file[found.end() :]
                rows[around].setdefault(int(found.group()), reading.file)
    ranks = {file: n for row in rows.values() if sorted(row) == list(range(size)) for n, file in row.items()}
    return [
        replace(r, log=_with(r.log, ranks[r.file])) if r.log is not None and r.file in ranks else r
        for r in readings
    ]


def _of_no_rank(log: LogReading) -> bool:
    """Return whether neither a log's name nor any of its lines tells a rank, and no launcher speaks in it."""
    named = log.rank is not None or log.local_rank is not None or log.recordings
    placed = any(
        e.by_launcher or e.rank is not None or e.local_rank is not None or e.task is not None
        for e in log.events
    )
    return not named and not placed


def _with(log: LogReading, number: int) -> LogReading:
    return replace(log, rank=number, events=[replace(e, rank=number) for e in log.events])


def _without(log: LogReading, number: int) -> LogReading:
    return replace(
        log,
        rank=None if log.rank == number else log.rank,
        events=[replace(e, rank=None) if e.rank == number else e for e in log.events],
        recordings=[replace(rec, rank=None) if rec.rank == number else rec for rec in log.recordings],
    )
