"""Which global rank a launcher's local one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.incident import Event
from hangscope.ingest.evidence.told_size import size_in_content
from hangscope.ingest.job_logs.endings import CleanupSignal, ExternalEnd
from hangscope.ingest.workers.reading import Reading


class LocalRanks:
    """Maps local ranks to global ones: by lines that carry both, else equal where nothing contradicts it.

    Each node numbers its own from 0. So what a file of one folder maps counts for that folder first, and further up only
    where the folders below agree, and where it is no other node's: on one node global and local ranks differ by one number.
    """

    def __init__(self, readings: Sequence[Reading]) -> None:
        self._known: dict[tuple[str, int], set[int]] = {}
        self._within: dict[tuple[str, int], set[int]] = {}
        for reading in readings:
            for (host, local), rank in reading.log.local_to_global.items() if reading.log is not None else ():
                self._known.setdefault((host, local), set()).add(rank)
                for folder in _folders(reading.file):
                    self._within.setdefault((folder, local), set()).add(rank)
        self._bases: dict[str, set[int]] = {}
        for (folder, local), ranks in self._within.items():
            self._bases.setdefault(folder, set()).update(rank - local for rank in ranks)
        self._bases |= self._left_over(readings)
        self._pids: dict[int, set[int]] = {}
        for reading in readings:
            for event in reading.all_events:
                pid = event.pid
                if event.rank is not None and pid is not None:
                    self._pids.setdefault(pid, set()).add(event.rank)
        hosts = {host for host, _ in self._known}
        # one file in which no line carries both, and that speaks of one rank alone, may be of any node
        told = {event.local_rank for r in readings for event in (r.log.events if r.log else ())} - {None}
        self._identity = (
            (bool(self._known) or len(readings) > 1 or len(told) > 1)
            and len(hosts) <= 1
            and all(ranks == {local} for (_, local), ranks in self._known.items())
        )
        for pid, rank in _signalled([e for r in readings for e in r.all_events]).items():
            self._pids.setdefault(pid, {rank})

    def _left_over(self, readings: Sequence[Reading]) -> dict[str, set[int]]:
        """Return which may be the first rank of agents whose ranks no line tells: what the job's other agents of as many leave."""
        agents: dict[str, set[int]] = {}
        for reading in readings:
            if reading.log is not None and reading.log.local_rank is not None:
                folder = reading.file.replace("\\", "/").rpartition(f"/{reading.log.local_rank}/")[0]
                agents.setdefault(folder, set()).add(reading.log.local_rank)
        left = [folder for folder in agents if not self._bases.get(folder)]
        told = [base for folder in agents for base in self._bases.get(folder, ())]
        size, own = size_in_content(readings), len(next(iter(agents.values()), ()))
        alike = all(local == set(range(own)) for local in agents.values()) and len({*told}) == len(told)
        if not (alike and told and own * len(agents) <= size):
            return {}
        return dict.fromkeys(left, set(range(0, size, own)).difference(told))

    def rank(self, host: str | None, local: int, file: str) -> int | None:
        """Return the global rank of a local one that `file` speaks of, or None."""
        if host and len(named := self._known.get((host, local), set())) == 1:
            return next(iter(named))
        bases: set[int] = set()
        for folder in _folders(file):
            bases = bases or self._bases.get(folder, set())
            found = self._within.get((folder, local))
            if len(bases) == 1 and folder.rsplit("/", 1)[-1].startswith("attempt_"):
                return local + next(
                    iter(bases)
                )  # torchrun's own folder: one agent's, which numbers its ranks in a row
            if found:
                rank = next(iter(found))
                return rank if len(found) == 1 and {rank - local} == bases else None
        return local if self._identity and len(bases) < 2 else None

    def of_pid(self, pid: int | None) -> int | None:
        """Return the global rank of a process id that one rank alone is known by, or None."""
        found = self._pids.get(pid, set()) if pid is not None else set()
        return next(iter(found)) if len(found) == 1 else None

    def event(self, event: Event) -> Event:
        """Return the event with its global rank where its local one tells it."""
        if event.rank is None and event.local_rank is not None:
            return replace(event, rank=self.rank(event.host, event.local_rank, event.file))
        return event


def _signalled(events: Sequence[Event]) -> dict[int, int]:
    """Return the ranks of processes by their ids, where the one agent of a job got a signal and passed it on to all of them.

    It does so by local rank, to those that still run (torch/distributed/elastic/multiprocessing/api.py, `_close`); a worker that
    failed is not among them, and of a job with several nodes other ranks are told of as well.
    """
    ended = {e.pid for e in events if isinstance(e, ExternalEnd) and e.signal is not None}
    sent = [e for e in events if isinstance(e, CleanupSignal) and e.agent is not None]
    pids = list(dict.fromkeys(e.pid for e in sent if e.pid is not None))
    known = {e.rank for e in events if e.rank is not None}
    if {e.agent for e in sent} != ended or len(ended) != 1 or not known <= set(range(len(pids))):
        return {}
    return {pid: rank for rank, pid in enumerate(pids)}


def _folders(file: str) -> list[str]:
    """Return the folders that a file lies in, the innermost first; the last is the top, `""`."""
    parts = file.replace("\\", "/").split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]
