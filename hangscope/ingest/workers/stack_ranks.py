"""Which rank a process is whose stacks stand behind a launcher's prefixes: by what the same file's other lines map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.stacks.dumps import ProcessStacks
from hangscope.ingest.workers.log_reading import LogReading, tasks_are_ranks


def placed(processes: Sequence[ProcessStacks], log: LogReading) -> list[ProcessStacks]:
    """Return the processes with their global ranks, as far as local ranks and tasks tell them.

    A task's number is its rank where several tasks dumped and none of them is a launcher of several ranks; a local rank is
    mapped by lines that carry both. Several that have neither rank nor process id are left out: nobody can tell them apart.
    """
    tasks = {process.task for process in processes if process.rank is None} - {None}
    by_task = len(tasks) > 1 and tasks_are_ranks(log.events)
    result = []
    for process in processes:
        rank = process.rank
        if rank is None and process.local_rank is not None:
            found = {
                known for (_, local), known in log.local_to_global.items() if local == process.local_rank
            }
            rank = found.pop() if len(found) == 1 else None
        elif rank is None and by_task:
            rank = process.task
        result.append(replace(process, rank=rank))
    named = [process for process in result if process.rank is not None or process.pid is not None]
    return result if len(result) - len(named) <= 1 else named
