"""Logs whose names have a bare number: a rank in `err.12` and `worker-1/app.log`, a job's number in `err.812345`.

The name alone does not tell them apart. A rank is below the size that the job's dumps and logs tell; where they tell
none, it is one of a row of files, or a small number. Of folders only a whole row, one for each rank of the job, is of ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.evidence.told_size import size_in_content
from hangscope.ingest.files.naming import bare_number, rows
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooTimeout
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.ingest.workers.reading import Reading

_SMALL = 256
_SPARSE = 4  # of four numbers in a row at least one file is there
_ROW = 3  # logs at least that a row needs where nothing else tells of ranks


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

    Where a line names a rank, or a launcher speaks, that tells whose a log is: lines that name another rank than the path's number
    show that the row counts something else. Where nothing at all tells a rank, a row from 0 of which most waited for their peers
    is the job. Where most logs of a row from 0 name their ranks, all before the others, the row goes on behind them. The one log that
    is left, beside logs of one rank each, is of the rank between them that has none. All lines of such a log are of its rank.
    """
    logs = {r.file: r.log for r in readings if r.log is not None and not r.threads}
    own = {file: ranks for file, log in logs.items() if (ranks := _told(log)) is not None}
    told_size = size_in_content(readings)
    size = told_size or max((rank + 1 for ranks in own.values() for rank in ranks), default=0)
    dumped = any(reading.recordings for reading in readings)
    if not size and not dumped and 2 * sum(map(_waited, logs.values())) > len(logs) >= _ROW:
        size = len(own)
    logs_of = [{n: f for n, f in row.items() if own[f] <= {n}} for row in rows(own if size > 1 else ())]
    whole = [row for row in logs_of if sorted(row) == list(range(size))]
    if not whole and not told_size:  # the last ranks may be those that no line names
        whole = [
            row
            for row in logs_of
            if sorted(row) == list(range(len(row)))
            and sum(bool(own[f]) for f in row.values()) == size > len(row) // 2
        ]
    whose = {file: n for row in whole for n, file in row.items()}
    whose = {file: rank for file, rank in whose.items() if own[file] <= {rank}}
    return [
        replace(r, log=_with(r.log, whose[r.file])) if r.log is not None and r.file in whose else r
        for r in readings
    ]


def _told(log: LogReading) -> frozenset[int] | None:
    """Return the ranks that a log's lines tell, or None where its name tells one, or a launcher speaks in it."""
    if log.rank is not None or log.local_rank is not None or log.recordings:
        return None
    if any(e.by_launcher or e.local_rank is not None or e.task is not None for e in log.events):
        return None
    return frozenset(e.rank for e in log.events if e.rank is not None)


def _waited(log: LogReading) -> bool:
    """Return whether a log tells that its process waited for its peers."""
    return any(
        isinstance(e, GlooTimeout | GlooClosed | WatchdogTimeout)
        or (isinstance(e, RankException) and e.symptom)
        for e in log.events
    )


def _with(log: LogReading, number: int) -> LogReading:
    return replace(log, rank=number, events=[replace(e, rank=number) for e in log.events])


def _without(log: LogReading, number: int) -> LogReading:
    return replace(
        log,
        rank=None if log.rank == number else log.rank,
        events=[replace(e, rank=None) if e.rank == number else e for e in log.events],
        recordings=[replace(rec, rank=None) if rec.rank == number else rec for rec in log.recordings],
    )
