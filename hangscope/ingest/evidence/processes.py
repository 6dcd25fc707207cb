"""Whose each line, recording and stack is: what every source tells of the processes of a job, settled once for all of them.

    [default3]:[rank11]: loaded                       local rank 3 of this log, its folders and its host is rank 11
    none_x1/attempt_0/3/stderr.log                    what stands here without a prefix is local rank 3's
    3: [rank3]: loaded                                tasks of srun are ranks, where no line tells otherwise
    gpu07:4711:4730 [3] NCCL INFO comm ... rank 11    process 4711 of gpu07 is rank 11, and so is what sits on its bus

Each source adds that a name (a local rank, a process id, a bus) is one of a rank. A name that two ranks are given tells nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.ingest.evidence.attempts import with_attempts
from hangscope.ingest.evidence.writers import Writers
from hangscope.ingest.job_logs.endings import Exit, ExitOk, WorkerDied
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.faults import Xid
from hangscope.ingest.job_logs.text.named_processes import Named
from hangscope.ingest.nccl.init import NcclInit
from hangscope.ingest.nccl.join import Joined
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.workers.reading import Reading, Thread
from hangscope.model.events import Event
from hangscope.model.regex import regex

#: what kind of name, where it holds (a host or a folder; None: anywhere), and the number
Name = tuple[str, "str | None", "int | None"]

_PCI = regex(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2})(?::|$)")
_NOBODY: frozenset[int] = frozenset()


class Processes:
    """The processes of a job by all their names. After it is made, the logs' events, recordings and attempts are settled."""

    def __init__(self, readings: Sequence[Reading], joined: Joined | None = None) -> None:
        self._ranks: dict[Name, set[int]] = {}
        self._locals: dict[int, set[int]] = {}  # local ranks by process id
        self._bases: dict[str | None, set[int]] = {}  # of the numbers in a folder: rank less local rank
        self._writers = {r.file: Writers(r.log) for r in readings if r.log is not None}
        for file, writers in self._writers.items():
            for (host, local), rank in writers.local.items():
                self._add("local", host, local, rank)
                for folder in _folders(file):
                    self._add("local in", folder, local, rank)
                    self._bases.setdefault(folder, set()).add(rank - local)
        self._identity = self._counts_as_one_host(len(readings))
        self._host_of_ip = joined.host_of_ip if joined is not None else {}
        for (_, host, pid), of_nccl in joined.rank_of_process.items() if joined is not None else ():
            if of_nccl is not None:
                self._add("process", host, pid, of_nccl)
        self._hosts = {host for kind, host, _ in self._ranks if kind == "process"}
        for reading in readings:
            self._settle(reading)
        for log in (r.log for r in readings if r.log is not None):
            self._read(log.excerpt.named if isinstance(log.excerpt, Excerpt) else ())
        told = [event for reading in readings for event in reading.all_events]
        self._hear(told)
        for reading in readings:
            reading.events = [self._of_its_process(event) for event in reading.events]
            if reading.log is not None:
                reading.log.events = [self._of_its_process(event) for event in reading.log.events]

    def _add(self, kind: str, where: str | None, number: int | None, rank: int) -> None:
        self._ranks.setdefault((kind, where, number), set()).add(rank)

    def _of(self, kind: str, where: str | None, number: int | None) -> int | None:
        """Return the only rank that bears a name, or None."""
        found = self._ranks.get((kind, where, number), _NOBODY)
        return next(iter(found)) if len(found) == 1 else None

    def _counts_as_one_host(self, files: int) -> bool:
        """Return whether local ranks are global ones: where nothing contradicts it, and not by one line that may be of any node."""
        known = {name: ranks for name, ranks in self._ranks.items() if name[0] == "local"}
        told = {local for writers in self._writers.values() for local in writers.stated_locals}
        return (
            (bool(known) or files > 1 or len(told) > 1)
            and len({host for _, host, _ in known}) <= 1
            and all(ranks == {local} for (_, _, local), ranks in known.items())
        )

    def local(self, host: str | None, local: int, file: str) -> int | None:
        """Return the global rank of a local one that `file` speaks of, or None.

        Each node numbers its own from 0. So what the files of one folder tell counts for that folder first, and further up only
        where the folders below agree, and where it is no other node's: on one node global and local ranks differ by one number.
        """
        if host and (named := self._of("local", host, local)) is not None:
            return named
        bases: set[int] = set()
        for folder in _folders(file):
            bases = bases or self._bases.get(folder, set())
            if len(bases) == 1 and folder.rsplit("/", 1)[-1].startswith("attempt_"):
                return local + next(
                    iter(bases)
                )  # torchrun's own folder: one agent's, with its ranks in a row
            if ("local in", folder, local) in self._ranks:
                rank = self._of("local in", folder, local)
                return rank if rank is not None and {rank - local} == bases else None
        return local if self._identity and len(bases) < 2 else None

    def of_pid(self, pid: int | None) -> int | None:
        """Return the global rank of a process id that one rank alone is known by, or None."""
        return self._of("pid", None, pid) if pid is not None else None

    def of_file(self, reading: Reading) -> int | None:
        """Return the rank of whose process a log is, by its path."""
        log = reading.log
        if log is None or log.rank is not None or log.local_rank is None:
            return log.rank if log is not None else None
        return self.local(None, log.local_rank, reading.file)

    def _settle(self, reading: Reading) -> None:
        """Give what prefixes, tasks and paths tell to the events and recordings of a reading, and each event of a log its attempt."""
        log, writers = reading.log, self._writers.get(reading.file)
        reading.events = [self._by_local(event) for event in reading.events]
        if log is None or writers is None:
            return
        log.events = with_attempts([self._by_local(writers.event(e)) for e in log.events], log.attempt)
        restarted = any(event.attempt for event in log.events)
        for recording in log.recordings:
            if recording.rank is None:
                recording.rank = writers.rank(recording.host, recording.local_rank, recording.task)
            recording.attempt = (
                log.attempt if log.attempt is not None else recording.attempt if restarted else None
            )

    def _by_local(self, event: Event) -> Event:
        if event.rank is not None or event.local_rank is None:
            return event
        return _with(event, self.local(event.host, event.local_rank, event.file))

    def _hear(self, events: Sequence[Event]) -> None:
        """Learn process ids and buses from the lines whose rank is known by now."""
        inits = [event for event in events if isinstance(event, NcclInit)]
        one_host = len({event.host for event in inits}) == 1
        for event in events:
            if event.rank is None:
                event = _with(event, self._by_nccl(event))
            if event.rank is not None and event.pid is not None:
                self._add("pid", None, event.pid, event.rank)
            if isinstance(event, NcclInit) and event.bus_id and event.rank is not None:
                bus = int(event.bus_id, 16) >> 12  # behind it stand the device and the function
                for host in {event.host, None if one_host else event.host}:
                    self._add("bus", host, bus, event.rank)

    def _read(self, named: Sequence[Named]) -> None:
        """Learn process ids from lines of a short text that name one process by its id and its rank."""
        for one in (n for n in named if len(n.pids) == 1):
            if len(one.locals) == 1:
                self._locals.setdefault(one.pids[0], set()).add(one.locals[0])
            elif len(one.ranks) == 1:
                self._add("pid", None, one.pids[0], one.ranks[0])

    def _by_nccl(self, event: Event) -> int | None:
        host = self._host_of_ip.get(event.host or "", event.host)  # RAS names nodes by address
        if len(self._hosts) == 1 and event.pid is not None and (host or isinstance(event, Terminate)):
            host = next(iter(self._hosts))  # of one host a process id tells the rank, however a line names it
        return self._of("process", host, event.pid) if host is not None else None

    def _of_its_process(self, event: Event) -> Event:
        """Return an event with the rank of the process or the device that it speaks of, which is all that kernels and shells know."""
        if event.rank is not None:
            return event
        rank = self._by_nccl(event)
        if rank is None:
            of_an_end = event.local_rank is None and isinstance(event, (Exit, ExitOk, WorkerDied))
            rank = self.of_pid(getattr(event, "victim_pid", event.pid if of_an_end else None))
        if rank is None and isinstance(event, Xid) and (bus := _PCI.match(event.device or "")):
            rank = self._of("bus", event.host, int(bus[1] + bus[2], 16))
        own = self._locals.get(getattr(event, "victim_pid", None) or -1, _NOBODY)
        if rank is None and event.local_rank is None and len(own) == 1:
            return replace(event, local_rank=next(iter(own)))
        return _with(event, rank)

    def stacks(
        self, reading: Reading, rank: int | None
    ) -> tuple[dict[int, list[Thread]], list[list[Thread]]]:
        """Return (threads by rank, threads of each process of no known rank); `rank` is what is known of the file.

        What the dump tells decides, then a process id that logs know, then the file's rank or its only writer, which is that of
        the first process: others in the file are its children.
        """
        writers = self._writers.get(reading.file) or Writers(None)
        threads = writers.stacks(reading.threads)
        placed: dict[int, list[Thread]] = {}
        for thread in threads:
            if thread.rank is not None:
                placed.setdefault(thread.rank, []).append(thread)
        if placed:
            return placed, []
        processes: dict[int | None, list[Thread]] = {}
        for thread in threads:
            processes.setdefault(thread.pid, []).append(thread)
        missed = []
        for number, (pid, of_one) in enumerate(processes.items()):
            known = self.of_pid(pid) if len(processes) > 1 or rank is None else None
            if known is not None and known not in placed:
                placed[known] = of_one
            else:
                missed.append((number, of_one))
        rank = writers.alone if rank is None else rank
        if rank is not None and rank not in placed and missed and missed[0][0] == 0:
            placed[rank] = missed.pop(0)[1]
        return placed, [of_one for _, of_one in missed]


def _with(event: Event, rank: int | None) -> Event:
    return event if rank is None else replace(event, rank=rank)


def _folders(file: str) -> list[str]:
    """Return the folders that a file lies in, the innermost first; the last is the top, `""`."""
    parts = file.replace("\\", "/").split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]
