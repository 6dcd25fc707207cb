"""Who wrote one log: which of its lines are whose, by their own prefixes, by what other lines map, or by the path."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.workers.log_reading import LogReading
from hangscope.ingest.workers.reading import Thread
from hangscope.model.events import Event


class Writers:
    """What one log tells of its writers. `local`: (host or "", local rank) -> global rank, without what the log contradicts."""

    def __init__(self, log: LogReading | None) -> None:
        self._log = log = log if log is not None else LogReading("")
        self._tasks_are_ranks = tasks_are_ranks(log.events)
        recorded = {recording.rank for recording in log.recordings if recording.rank is not None}
        heard = {e.rank for e in log.events if e.rank is not None and not e.by_launcher} | recorded
        self._only = min(heard) if len(heard) == 1 else None
        self.local = _local_ranks(log)
        if log.local_rank is not None and self._only is not None:
            self.local.setdefault(("", log.local_rank), self._only)
        self.stated_locals = {event.local_rank for event in log.events} - {None}
        if log.local_rank is not None and any(e.local_rank is None for e in log.events):
            self.stated_locals.add(log.local_rank)

    @property
    def alone(self) -> int | None:
        """Return the rank whose own log this is: the one that speaks in it, where no launcher does beside it."""
        ranks = {event.rank for event in self._log.events if event.rank is not None}
        launched = any(event.by_launcher for event in self._log.events)
        return ranks.pop() if len(ranks) == 1 and not launched else None

    def rank(self, host: str | None, local: int | None, task: int | None) -> int | None:
        """Return the global rank of what has these names in front of it, or none."""
        if local is not None:
            mapped = self.local.get((host or "", local))
            found = {rank for (_, number), rank in self.local.items() if number == local}
            return mapped if mapped is not None else found.pop() if len(found) == 1 else None
        if task is not None:
            return task if self._tasks_are_ranks else None
        if self._log.rank is not None:
            return self._log.rank
        return self._only if self._log.local_rank is not None else None

    def event(self, event: Event) -> Event:
        """Return the event with its rank, and with the path's local rank where it has none."""
        if event.rank is not None:
            return event
        local, own = event.local_rank, self._log.local_rank
        if local is None and own is not None and not isinstance(event, CleanupSignal):
            return replace(event, rank=self._only, local_rank=own)
        if event.by_launcher and local is None and event.task is None:
            return event  # a launcher's line speaks of others, whoever's file it stands in
        return replace(event, rank=self.rank(event.host, local, event.task))

    def stacks(self, threads: Sequence[Thread]) -> list[Thread]:
        """Return the threads with the ranks of their processes, as far as local ranks and tasks tell them; those of ranks alone, where there are any.

        A task's number is its rank where several tasks dumped and none of them is a launcher of several ranks; a local rank is
        mapped by lines that carry both, or is the rank where command lines state all of one host. Several processes that have
        neither rank nor process id are left out: nobody can tell them apart.
        """
        processes = [list(of_one) for _, of_one in groupby(threads, key=lambda t: t.process)]
        several_tasks = len({p[0].task for p in processes if p[0].rank is None} - {None}) > 1
        stated = self._of_one_host([p[0] for p in processes])
        found = []
        for process in processes:
            first, rank = process[0], process[0].rank
            if rank is None and first.local_rank is not None:
                known = {r for (_, local), r in self.local.items() if local == first.local_rank}
                rank = known.pop() if len(known) == 1 else first.local_rank if first.pid in stated else None
            elif rank is None and several_tasks and self._tasks_are_ranks:
                rank = first.task
            found.append((rank, [replace(thread, rank=rank) for thread in process]))
        if any(rank is not None for rank, _ in found):
            found = [(rank, process) for rank, process in found if rank is not None]
        named = [(rank, process) for rank, process in found if rank is not None or process[0].pid is not None]
        return [t for _, process in (found if len(found) - len(named) <= 1 else named) for t in process]

    def _of_one_host(self, processes: Sequence[Thread]) -> set[int | None]:
        """Return the process ids whose command lines state local ranks, if these count from 0 and no line shows a higher rank."""
        told = {
            p.pid: p.local_rank for p in processes if p.rank is None and p.local_rank is not None and p.pid
        }
        counted = len(told) > 1 and sorted(told.values()) == list(range(len(told)))
        heard = {event.rank for event in self._log.events if event.rank is not None}
        return set(told) if counted and heard <= set(told.values()) and not self.local else set()


def _local_ranks(log: LogReading) -> dict[tuple[str, int], int]:
    seen: dict[tuple[str, int], set[int]] = {}
    named: list[Event | Recording] = [*log.events, *log.recordings]
    for told in named:
        if told.local_rank is not None and told.rank is not None:
            seen.setdefault((told.host or "", told.local_rank), set()).add(told.rank)
    return {key: next(iter(ranks)) for key, ranks in sorted(seen.items()) if len(ranks) == 1}


def tasks_are_ranks(events: Sequence[Event]) -> bool:
    """Return whether srun's or mpirun's task numbers are ranks: not where a line shows both and they differ, nor under an agent.

    What srun says of one task per host does not tell: the task may be an agent with eight workers. Who is started by mpirun is a
    rank of MPI, and so of the job where nothing tells of an agent.
    """
    told = [e for e in events if e.task is not None]
    tasks = {(e.host, e.task) for e in told}
    one_per_host = len({host for host, _ in tasks}) == len(tasks)
    by_mpirun = all(isinstance(e, Exit) and e.via == "mpirun" for e in told)
    if told and one_per_host and all(e.by_launcher for e in told) and not by_mpirun:
        return False
    return not any(e.rank not in (None, e.task) or e.local_rank is not None or _of_an_agent(e) for e in told)


def _of_an_agent(event: Event) -> bool:
    """Return whether torchrun's agent printed this."""
    if isinstance(event, Exit) and event.via in {"agent", "table"}:
        return True
    return isinstance(event, (Exit, CleanupSignal)) and event.agent is not None
