"""Whose each line, recording and stack is: what every source states about the processes of a job, settled once for all of them.

    [default3]:[rank11]: loaded                       local rank 3 of this log, its folders and its host is rank 11
    none_x1/attempt_0/3/stderr.log                    lines without a prefix in this file are local rank 3's
    3: [rank3]: loaded                                tasks of srun are ranks, where no line contradicts it
    gpu07:4711:4730 [3] NCCL INFO comm ... rank 11    process 4711 of gpu07 is rank 11, and so is what uses the GPU on its bus

Each source adds that a name (a local rank, a process id, a bus) belongs to a rank. A name that belongs to two ranks identifies neither.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from hangscope.ingest.evidence.attempts import with_attempts
from hangscope.ingest.evidence.tasks import of_the_only_failure, take_stated_ranks, tasks_are_ranks
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.files.naming import bare_number
from hangscope.ingest.files.numbering import of_files
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit, ExitOk, WorkerDied
from hangscope.ingest.job_logs.faults import LoaderWorkerDeath
from hangscope.ingest.lines.rank_words import Named
from hangscope.ingest.nccl.comm import NcclInit
from hangscope.ingest.nccl.join import Joined
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.workers.reading import LogReading, Reading
from hangscope.model.events import Event
from hangscope.model.regex import regex

#: what kind of name, where it holds (a host, a file or a folder; None: anywhere), and the number
Name = tuple[str, "str | None", "int | None"]
_PCI = regex(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2})(?::|$)")
_NOBODY: frozenset[int] = frozenset()


class Processes:
    """The processes of a job by all their names. After it is made, the logs' events, recordings and attempts are settled."""

    def __init__(self, readings: Sequence[Reading], joined: Joined | None = None) -> None:
        self._ranks: dict[Name, set[int]] = {}
        self._locals: dict[int, set[int]] = {}  # local ranks by process id
        self._bases: dict[str | None, set[int]] = {}  # of the numbers in a folder: rank less local rank
        self._logs = {r.file: r.log for r in readings if r.log.lines}
        take_stated_ranks(self._logs.values())
        self._heard = {file: _heard(log) for file, log in self._logs.items()}
        for file, log in self._logs.items():
            if bare_number(file) is not None and self._heard[file] - {log.rank}:
                log.rank = None  # a node's or a launcher's number: other ranks print here
        self._count_logs({r.file for r in readings if len(r.stacks) == 1})
        for file, log in self._logs.items():
            self._learn_local_ranks(file, log)
            for host, ranks in log.excerpt.ranks_of_hosts if isinstance(log.excerpt, Excerpt) else ():
                for local, rank in enumerate(ranks):
                    self._add("local", host, local, rank)
        self._identity = self._counts_as_one_host(len(readings))
        self._host_of_ip = joined.host_of_ip if joined is not None else {}
        for (_, host, pid), of_nccl in joined.rank_of_process.items() if joined is not None else ():
            if of_nccl is not None:
                self._add("process", host, pid, of_nccl)
        self._hosts = {host for kind, host, _ in self._ranks if kind == "process"}
        for reading in readings:
            self._settle(reading)
        for log in self._logs.values():
            if isinstance(log.excerpt, Excerpt):
                self._learn_named(log.excerpt.named, dict(log.excerpt.ranks_of_hosts))
        self._learn_ids([event for reading in readings for event in reading.all_events])
        for reading in readings:
            reading.events = [self._of_its_process(event) for event in reading.events]
            reading.log.events = [self._of_its_process(event) for event in reading.log.events]

    def _count_logs(self, single: Collection[str]) -> None:
        """Give logs the numbers in their names as ranks, where these count the processes of the job; `single` hold the stack of one each.

        A launcher's log, which reports the ends of ranks, is of a node.
        """
        spoken_of = {
            file: self._heard[file] or {e.rank for e in log.events if e.by_launcher and e.rank is not None}
            for file, log in self._logs.items()
            if log.rank is None and log.local_rank is None
        }
        unnamed = {file: only(ranks) for file, ranks in spoken_of.items() if len(ranks) < 2}
        for file, rank in of_files(unnamed, single=single).items():
            self._logs[file].rank = rank

    def _add(self, kind: str, where: str | None, number: int | None, rank: int) -> None:
        self._ranks.setdefault((kind, where, number), set()).add(rank)

    def _of(self, kind: str, where: str | None, number: int | None) -> int | None:
        return only(self._ranks.get((kind, where, number), _NOBODY))

    def _learn_local_ranks(self, file: str, log: LogReading) -> None:
        """Learn local ranks from the lines and recordings that state both, and from the path of a log in which one rank prints."""
        found: dict[tuple[str, int], set[int]] = {}
        named: list[Event | Recording] = [*log.events, *log.recordings]
        for one in named:
            if one.local_rank is not None and one.rank is not None:
                found.setdefault((one.host or "", one.local_rank), set()).add(one.rank)
        if log.local_rank is not None and (alone := only(self._heard[file])) is not None:
            found.setdefault(("", log.local_rank), {alone})
        for (host, local), ranks in found.items():
            if (rank := only(ranks)) is not None:
                self._add("local", host, local, rank)
                for place in (file, *_folders(file)):
                    self._add("local in", place, local, rank)
                    self._bases.setdefault(place, set()).add(rank - local)

    def _counts_as_one_host(self, files: int) -> bool:
        """Return whether local ranks are global ones: where nothing contradicts it, and not by one line that may be of any node."""
        known = {name: ranks for name, ranks in self._ranks.items() if name[0] == "local"}
        stated = {event.local_rank for log in self._logs.values() for event in log.events}
        stated |= {
            log.local_rank for log in self._logs.values() if any(e.local_rank is None for e in log.events)
        }
        texts = [log.excerpt for log in self._logs.values() if isinstance(log.excerpt, Excerpt)]
        one_node = len(texts) == len(self._logs) == 1 and texts[0].one_node  # by the command in the only log
        of_one = bool(known) or files > 1 or len(stated - {None}) > 1 or one_node or self._is_one_console()
        apart = len({host for _, host, _ in known}) > 1 or any(text.several_nodes for text in texts)
        return of_one and not apart and all(ranks == {local} for (_, _, local), ranks in known.items())

    def _is_one_console(self) -> bool:
        """Return whether one log has the lines of all ranks from 0 on and one report of torch.multiprocessing, which every host makes."""
        heard = set[int]().union(*self._heard.values())
        events = [event for log in self._logs.values() for event in log.events]
        spawned = [event for event in events if isinstance(event, Exit) and event.via == "spawn"]
        return len(self._logs) == len(spawned) == 1 < len(heard) and heard == {*range(len(heard))}

    def local(self, host: str | None, local: int, file: str) -> int | None:
        """Return the global rank of a local one that `file` is about, or None.

        Each node numbers its own from 0. So what the file and the files of its folder state counts first, and further up only where
        the folders below agree, and where it is no other node's: on one node global and local ranks differ by one number.
        """
        named = self._of("local", host, local) if host else None
        if (named := named if named is not None else self.in_file(file, local)) is not None:
            return named
        bases: set[int] = set()
        for folder in _folders(file):
            bases = bases or self._bases.get(folder, set())
            if len(bases) == 1 and folder.rsplit("/", 1)[-1].startswith("attempt_"):
                return local + min(bases)  # torchrun's own folder: one agent's, with its ranks in a row
            if ("local in", folder, local) in self._ranks:
                rank = self._of("local in", folder, local)
                return rank if rank is not None and {rank - local} == bases else None
        if (block := self._block_of(file)) and local < len(block):
            return block[local]
        return local if self._identity and len(bases) < 2 and not block else None

    def _block_of(self, file: str) -> range:
        """Return the ranks whose lines a file has, where they are those of one node other than the first: one of equal blocks."""
        heard = sorted(self._heard.get(file, ()))
        block = range(heard[0], heard[0] + len(heard)) if len(heard) > 1 and heard[0] else range(0)
        return block if heard == [*block] and not block.start % max(1, len(heard)) else range(0)

    def of_pid(self, pid: int | None) -> int | None:
        """Return the global rank of a process id that one rank alone is known by, or None."""
        return self._of("pid", None, pid) if pid is not None else None

    def in_their_row(self, pid: int) -> int | None:
        """Return the rank between others whose process ids are one number above their ranks: a launcher starts them in that order."""
        pids = {min(ranks): number or 0 for (kind, _, number), ranks in self._ranks.items() if kind == "pid"}
        rows = {number - rank for rank, number in pids.items()}
        rank = pid - min(rows, default=0)
        return rank if len(rows) == 1 and rank not in pids and min(pids) < rank < max(pids) else None

    def in_file(self, file: str, local: int) -> int | None:
        """Return the rank that lines of a file state of a local one, or None."""
        return self._of("local in", file, local)

    def of_file(self, reading: Reading) -> int | None:
        """Return the rank of whose process a log is, by its path."""
        log = reading.log
        if log.rank is not None or log.local_rank is None:
            return log.rank
        return self.local(None, log.local_rank, reading.file)

    def _settle(self, reading: Reading) -> None:
        """Give the events and recordings of a reading the ranks that prefixes, tasks and paths state, and each its attempt."""
        log = reading.log
        reading.events = [self._by_local(event) for event in reading.events]
        tasks = tasks_are_ranks(log.events)
        settled = of_the_only_failure([self._by_log(event, log, tasks) for event in log.events])
        log.events = with_attempts(settled, log.attempt)
        restarted = any(event.attempt for event in log.events)
        for recording in log.recordings:
            if recording.rank is None and recording.local_rank is not None:
                recording.rank = self.local(recording.host, recording.local_rank, reading.file)
            elif recording.rank is None and recording.task is not None:
                recording.rank = recording.task if tasks else None
            elif recording.rank is None:
                recording.rank = self.of_file(reading)
            recording.attempt = (
                log.attempt if log.attempt is not None else recording.attempt if restarted else None
            )

    def _by_log(self, event: Event, log: LogReading, tasks: bool) -> Event:
        if event.rank is not None:
            return event
        if event.local_rank is None and log.local_rank is not None and not isinstance(event, CleanupSignal):
            event = replace(event, local_rank=log.local_rank, rank=only(self._heard[event.file]))
        elif event.local_rank is None and event.task is not None:
            return replace(event, rank=event.task if tasks else None)
        elif event.local_rank is None and not event.by_launcher:
            return replace(event, rank=log.rank)  # a launcher's line is about others, whoever's file it is in
        return self._by_local(event)

    def _by_local(self, event: Event) -> Event:
        if event.rank is not None or event.local_rank is None:
            return event
        return _with(event, self.local(event.host, event.local_rank, event.file))

    def _learn_ids(self, events: Sequence[Event]) -> None:
        """Learn process ids and buses from the lines whose rank is known by now."""
        inits = [event for event in events if isinstance(event, NcclInit)]
        one_host = len({event.host for event in inits}) == 1
        for event in events:
            rank = event.rank if event.rank is not None else self._by_nccl(event)
            if rank is not None and event.pid is not None:
                self._add("pid", None, event.pid, rank)
                if isinstance(event, Exit) and event.host is not None:
                    self._add("process", event.host, event.pid, rank)
            if isinstance(event, NcclInit) and event.bus_id and rank is not None:
                bus = int(event.bus_id, 16) >> 12  # without the device and the function
                for host in {event.host, None if one_host else event.host}:
                    self._add("bus", host, bus, rank)

    def _learn_named(self, named: Sequence[Named], of_hosts: Mapping[str, Sequence[int]]) -> None:
        """Learn process ids and buses from lines of a short text that name one process by its id or its GPU's bus, and its rank.

        `of_hosts` are the ranks of each host in the order of their local ranks.
        """
        for one in named:
            for kind, numbers in (("bus", one.buses), ("pid", one.pids)):
                if len(numbers) == len(one.ranks) == 1:
                    self._add(kind, None, numbers[0], one.ranks[0])
            if len(one.pids) == len(one.locals) == 1 and one.locals[0] < len(of_hosts.get(one.host, ())):
                self._add("pid", None, one.pids[0], of_hosts[one.host][one.locals[0]])
            elif len(one.pids) == len(one.locals) == 1:
                self._locals.setdefault(one.pids[0], set()).add(one.locals[0])

    def _by_nccl(self, event: Event) -> int | None:
        host = self._host_of_ip.get(event.host or "", event.host)  # RAS names nodes by address
        if len(self._hosts) == 1 and event.pid is not None and (host or isinstance(event, Terminate)):
            # on one host a process id identifies the rank, however a line names the host
            host = next(iter(self._hosts))
        return self._of("process", host, event.pid) if host is not None else None

    def _of_its_process(self, event: Event) -> Event:
        """Return an event with the rank of the process or the device that it is about, which is all that kernels and shells know."""
        if event.rank is not None:
            return event
        rank = self._by_nccl(event)
        victim = getattr(event, "victim_pid", None)
        if rank is None:
            of_an_end = event.local_rank is None and isinstance(
                event, (Exit, ExitOk, WorkerDied, LoaderWorkerDeath)
            )
            of_an_end |= isinstance(event, RankException) and event.host is None and event.local_rank is None
            rank = self.of_pid(event.pid if of_an_end else victim)
        device = getattr(event, "device", None)
        if rank is None and isinstance(device, str) and (bus := _PCI.match(device)):
            rank = self._of("bus", event.host, int(bus[1] + bus[2], 16))
        if rank is None and event.local_rank is None and victim:
            return replace(event, local_rank=only(self._locals.get(victim, _NOBODY)))
        return _with(event, rank)


def only(ranks: Collection[int]) -> int | None:
    """Return the only one of some ranks, or None."""
    return next(iter(ranks)) if len(ranks) == 1 else None


def _heard(log: LogReading) -> set[int]:
    """Return the ranks that print lines of a log, by their own prefixes and recordings."""
    heard = {event.rank for event in log.events if event.rank is not None and not event.by_launcher}
    return heard | {recording.rank for recording in log.recordings if recording.rank is not None}


def _with(event: Event, rank: int | None) -> Event:
    return event if rank is None else replace(event, rank=rank)


def _folders(file: str) -> list[str]:
    """Return the folders that a file lies in, the innermost first; the last is the top, `""`."""
    parts = file.replace("\\", "/").split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts), -1, -1)]
