"""Logs whose names have a bare number: a rank in `err.12` and `worker-1/app.log`, a job's number in `err.812345`.

The name alone does not tell them apart. A rank is below the size that the job's dumps and logs tell; where they tell
none, it is one of a row of files, or a small number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.evidence.told_size import size_in_content
from hangscope.ingest.files.naming import bare_number
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.ingest.workers.reading import Reading

_SMALL = 256
_SPARSE = 4  # of four numbers in a row at least one file is there


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


def _without(log: LogReading, number: int) -> LogReading:
    return replace(log, rank=None) if log.rank == number else log
