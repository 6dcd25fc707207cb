"""Which rank a process is whose stacks stand behind a launcher's prefixes: by what the same file's other lines map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.stacks.dumps import ProcessStacks
from hangscope.ingest.workers.log_reading import LogReading, tasks_are_ranks


def placed(processes: Sequence[ProcessStacks], log: LogReading) -> list[ProcessStacks]:
    """Return the processes with their global ranks, as far as local ranks and tasks tell them.

    A task's number is its rank where several tasks dumped and none of them is a launcher of several ranks; a local rank is
    mapped by lines that carry both, or is the rank where command lines state all of one host. Several that have neither rank nor process id are left out: nobody can tell them apart.
    """
    tasks = {process.task for process in processes if process.rank is None} - {None}
    by_task = len(tasks) > 1 and tasks_are_ranks(log.events)
    own = _of_one_host(processes, log)
    result = []
    for process in processes:
        rank = process.rank
        if rank is None and process.local_rank is not None:
            found = {
                known for (_, local), known in log.local_to_global.items() if local == process.local_rank
            }
            rank = found.pop() if len(found) == 1 else process.local_rank if process.pid in own else None
        elif rank is None and by_task:
            rank = process.task
        result.append(replace(process, rank=rank))
    named = [process for process in result if process.rank is not None or process.pid is not None]
    return result if len(result) - len(named) <= 1 else named


def _of_one_host(processes: Sequence[ProcessStacks], log: LogReading) -> set[int | None]:
    """Return the process ids whose command lines state local ranks, if these count from 0 and no line shows a higher rank."""
    found = {
        p.pid: p.local_rank
        for p in processes
        if p.rank is None and p.local_rank is not None and p.pid is not None
    }
    counted = len(found) > 1 and sorted(found.values()) == list(range(len(found)))
    heard = {event.rank for event in log.events if event.rank is not None}
    return set(found) if counted and heard <= set(found.values()) and not log.local_to_global else set()
