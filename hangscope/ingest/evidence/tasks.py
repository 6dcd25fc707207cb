"""Whether the numbers of srun's or mpirun's tasks are ranks, and which ranks logs state of their own processes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.torch_logs.store import RendezvousBegun
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import LogReading
from hangscope.model.events import Event


def tasks_are_ranks(events: Sequence[Event]) -> bool:
    """Return whether srun's or mpirun's task numbers are ranks: not where a line shows both and they differ, nor under an agent.

    What srun reports of one task per host does not show it: the task may be an agent with eight workers. Who is started by mpirun is
    a rank of MPI, and so of the job where nothing shows an agent.
    """
    with_task = [e for e in events if e.task is not None]
    tasks = {(e.host, e.task) for e in with_task}
    one_per_host = len({host for host, _ in tasks}) == len(tasks)
    by_mpirun = all(isinstance(e, Exit) and e.via == "mpirun" for e in with_task)
    if with_task and one_per_host and all(e.by_launcher for e in with_task) and not by_mpirun:
        return False
    by_agent = any(
        isinstance(e, RendezvousBegun)
        or (isinstance(e, Exit) and e.via in {"agent", "table"})
        or (isinstance(e, (Exit, CleanupSignal)) and e.agent is not None)
        for e in with_task
    )
    return not by_agent and all(e.rank in (None, e.task) and e.local_rank is None for e in with_task)


def take_stated_ranks(logs: Collection[LogReading]) -> None:
    """Give logs the ranks that their processes say of themselves, where several do, of one world size and each another rank."""
    stated = [log.stated for log in logs if log.stated is not None]
    ranks = {rank for rank, size in stated if rank < size}
    if len(stated) < 2 or len(ranks) < len(stated) or len({size for _, size in stated}) > 1:
        return
    for log in logs:
        if log.stated is not None and log.rank is None and log.local_rank is None:
            log.rank = log.stated[0]


def of_the_only_failure(events: list[Event]) -> list[Event]:
    """Give the only exception of a log that names no rank that of the only process which torchrun's table below it reports as failed."""
    table = [e for e in events if isinstance(e, Exit) and e.via == "table" and e.rank is not None]
    raised = [e for e in events if isinstance(e, RankException) and not e.symptom]
    if len({e.rank for e in table}) != 1 or len(raised) != 1 or raised[0].line > table[0].line:
        return events
    own, rank = raised[0], table[0].rank
    is_known = own.rank is not None or own.local_rank is not None
    return events if is_known else [replace(e, rank=rank) if e is own else e for e in events]
