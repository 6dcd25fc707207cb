"""Which global rank a launcher's local one is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.incident import Event
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


def _folders(file: str) -> list[str]:
    """Return the folders that a file lies in, the innermost first; the last is the top, `""`."""
    parts = file.replace("\\", "/").split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]
