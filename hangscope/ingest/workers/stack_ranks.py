"""Which rank a process is whose stacks stand behind a launcher's prefixes: by what the same file's other lines map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.incident import Stack
from hangscope.ingest.stacks.dumps import ProcessStacks
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.log_reading import LogReading, tasks_are_ranks

_LEAST = 3  # ranks of which one may be told by what the others leave


def placed(processes: Sequence[ProcessStacks], log: LogReading) -> list[ProcessStacks]:
    """Return the processes with their global ranks, as far as local ranks and tasks tell them.

    A task's number is its rank where several tasks dumped and none of them is a launcher of several ranks; a local rank is
    mapped by lines that carry both, or is the rank where command lines tell all of one host. Of several that have neither rank
    nor process id nobody can say whose is which: they are left out.
    """
    tasks = {process.task for process in processes if process.rank is None} - {None}
    by_task = len(tasks) > 1 and tasks_are_ranks(log.events)
    own = _of_one_host(processes, log)
    result = []
    for process in processes:
        if len(process.apart) > 1 and (told := _by_tracebacks(process.apart, log)):
            result += told
            continue
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
    """Return the processes whose command lines tell local ranks, where these count from 0 and no line tells of a higher rank."""
    found = {
        p.pid: p.local_rank
        for p in processes
        if p.rank is None and p.local_rank is not None and p.pid is not None
    }
    heard = {event.rank for event in log.events if event.rank is not None}
    counted = sorted(found.values()) == list(range(len(found)))
    return (
        set(found)
        if counted and len(found) > 1 and heard <= set(found.values()) and not log.local_to_global
        else set()
    )


def _by_tracebacks(stacks: Sequence[Stack], log: LogReading) -> list[ProcessStacks]:
    """Return whose stacks these are, where the tracebacks of all ranks but one stand where as many of them do; else nothing.

    A terminal mixes what all ranks write, and faulthandler prints no rank. The stack that is left is that of the rank that is.
    """
    stood = {e.rank: e.frames for e in log.events if isinstance(e, RankException) and e.rank is not None}
    left, placed_ = list(stacks), []
    for rank, frames in sorted(stood.items()):
        same = next((n for n, stack in enumerate(left) if _lines(stack) == _lines(frames)), None)
        if same is None:
            return []
        placed_.append((rank, left.pop(same)))
    silent = set(range(len(stacks))) - set(stood)
    if len(left) != 1 or len(silent) != 1 or len(stacks) < _LEAST:
        return []
    placed_.append((silent.pop(), left[0]))
    return [ProcessStacks(rank, threads=[("MainThread", stack, True)]) for rank, stack in placed_]


def _lines(stack: Stack) -> tuple[tuple[str, int], ...]:
    return tuple((frame.file, frame.line) for frame in stack)
