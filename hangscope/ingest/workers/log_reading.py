"""One log as a whole: its events with their ranks and attempts, and the calls that it recorded in text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from itertools import pairwise
from typing import BinaryIO

from hangscope.dataclass import dataclass
from hangscope.errors import Note
from hangscope.events import Event
from hangscope.ingest.files.naming import attempt_of, rank_of_log
from hangscope.ingest.job_logs import announced, endings, engines, faults, held, messages
from hangscope.ingest.job_logs.accelerate_check import AccelerateCheckParser
from hangscope.ingest.job_logs.endings import CleanupSignal, Exit
from hangscope.ingest.job_logs.excerpt import excerpt
from hangscope.ingest.job_logs.good_ends import good_ends
from hangscope.ingest.job_logs.gpu_table import GpuTableParser
from hangscope.ingest.job_logs.kernel import KernelParser
from hangscope.ingest.job_logs.launchers.deepspeed import DeepSpeedParser
from hangscope.ingest.job_logs.launchers.exit_codes import ExitCodeParser
from hangscope.ingest.job_logs.launchers.failure_table import FailureTableParser
from hangscope.ingest.job_logs.launchers.horovod import HorovodParser
from hangscope.ingest.job_logs.launchers.kubernetes import PodParser
from hangscope.ingest.job_logs.launchers.ray import RayParser
from hangscope.ingest.job_logs.printed import last_lines, printed
from hangscope.ingest.job_logs.progress import progress_events
from hangscope.ingest.lines.forms import FormParser
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.scan import scan
from hangscope.ingest.nccl.hccl import HcclParser
from hangscope.ingest.nccl.last_error import LastErrorParser
from hangscope.ingest.nccl.service_thread import ServiceThreadParser
from hangscope.ingest.recorder.recording import Recording
from hangscope.ingest.torch_logs import abort, c10d, nccl2, store, wrapper
from hangscope.ingest.torch_logs.abort import AbortParser
from hangscope.ingest.torch_logs.analyzer import AnalyzerParser
from hangscope.ingest.torch_logs.analyzer_table import AnalyzerTableParser
from hangscope.ingest.torch_logs.debug_pages import DebugPageParser
from hangscope.ingest.torch_logs.desync import DesyncParser, FailedStackParser
from hangscope.ingest.torch_logs.detail import DetailParser
from hangscope.ingest.torch_logs.store_barrier import StoreBarrierParser
from hangscope.ingest.torch_logs.traceback import RankException, TracebackParser
from hangscope.ingest.torch_logs.two_ranks import contradiction
from hangscope.ingest.workers.attempts import with_attempts
from hangscope.ingest.workers.identity import merge_repeats
from hangscope.regex import regex

#: what only a job of this kind prints: text that holds it tells of one, if of nothing that went wrong
_OF_A_JOB = regex(
    rb"NCCL (?:INFO|WARN) |\[rank\d{1,7}\]:|ProcessGroup[A-Z]\w{2,10}|process_group_\w{2,20}\.cpp|torch[./]distributed|TCPStore"
    rb"|\b(?:(?:TORCH_)?NCCL|TORCH_(?:FR|DISTRIBUTED))_[A-Z]|\b[Hh]orovod|[a-z]: opCount \d|distributed init \(rank|shm_broadcast|\b(?:world_size|nranks)\b"
    rb"|Communicators\.\.\. \(\d|\bComms +Nodes +Ranks\b"
)
#: without which none of these is in a text
_SIGNS = (
    b"NCCL", b"[rank", b"ProcessGroup", b"process_group_", b"torch.distributed", b"torch/distributed", b"TCPStore", b"TORCH_",
    b"orovod", b"opCount", b"distributed init", b"shm_broadcast", b"world_size", b"nranks", b"Communicators...", b"Comms ",
)  # fmt: skip


@dataclass(slots=True)
class LogReading:
    """What one log says.

    `local_to_global` maps (host or "", local rank) to the global rank where lines of this log carry both;
    `rank`, `local_rank` and `attempt` are those of the path. `lines` and `size` (bytes) count what was read. `tail` are the
    last lines of a rank's own log, the oldest first. `of_a_job`: its end holds what only a distributed job prints. `excerpt`: a short
    text as a whole.
    """

    file: str
    events: list[Event] = field(default_factory=list)
    recordings: list[Recording] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    lines: int = 0
    size: int = 0
    rank: int | None = None
    local_rank: int | None = None
    attempt: int | None = None
    local_to_global: dict[tuple[str, int], int] = field(default_factory=dict)
    tail: tuple[str, ...] = ()
    of_a_job: bool = False
    excerpt: Event | None = None


def only_writer(log: LogReading) -> int | None:
    """Return the rank whose own log this is: the one that speaks in it, where no launcher does beside it."""
    writers = {event.rank for event in log.events if event.rank is not None}
    launched = any(event.by_launcher for event in log.events)
    return writers.pop() if len(writers) == 1 and not launched else None


def read_log(
    stream: BinaryIO, file: str, extra: Sequence[LineParser] = (), path: str | None = None
) -> LogReading:
    """Return what a log says. Reads the stream once, in memory that does not grow with it; never raises for what it holds.

    `file` is the name that events show, `path` the one that rank and attempt are read from (default: `file`);
    `extra` are further parsers, asked after those here.
    """
    detail, table = DetailParser(file), FailureTableParser()
    parsers: list[LineParser | type[LineParser]] = [
        FormParser(c10d), FormParser(store), FormParser(nccl2), FormParser(endings), FormParser(faults), FormParser(abort),
        FormParser(engines), FormParser(announced), FormParser(held), messages.MessageParser(), wrapper.WrapperParser(), HcclParser(),
        TracebackParser, table, ExitCodeParser, PodParser, AbortParser, DesyncParser, FailedStackParser,
        StoreBarrierParser, AnalyzerParser, AnalyzerTableParser, LastErrorParser, ServiceThreadParser, DebugPageParser,
        DeepSpeedParser, RayParser, HorovodParser, KernelParser, AccelerateCheckParser, GpuTableParser, detail, *extra,
    ]  # fmt: skip
    found = scan(stream, file, parsers)
    (rank, local_rank), attempt = rank_of_log(path or file), attempt_of(path or file)
    reading = LogReading(
        file,
        notes=[*found.notes, *table.notes],
        lines=found.lines,
        size=found.size,
        rank=rank,
        local_rank=local_rank,
        attempt=attempt,
    )
    own = rank is not None or local_rank is not None
    own_lines = printed(found.windows, file, own)
    signs = (data for _, data in found.windows if any(sign in data for sign in _SIGNS))
    reading.of_a_job = any(map(_OF_A_JOB.search, signs))
    reading.tail = last_lines(found.windows) if own else ()
    ends = good_ends(found.windows, file)
    reading.excerpt = excerpt(found.windows, found.size, file)
    told = [*found.events, *progress_events(found.windows, file), *ends, *own_lines]
    events = _of_spawned(sorted(told, key=lambda event: event.line))
    recorded = detail.recordings(owned=own)
    reading.notes += contradiction(events)
    reading.local_to_global = _local_ranks(events, recorded)
    writers = {event.rank for event in events if event.rank is not None and not event.by_launcher}
    writers |= {recording.rank for recording, _, _ in recorded if recording.rank is not None}
    if local_rank is not None and len(writers) == 1:
        reading.local_to_global.setdefault(("", local_rank), min(writers))
    whose = _Whose(reading, tuple(writers), tasks_are_ranks(events))
    events = with_attempts([whose.event(event) for event in events], attempt)
    reading.events = sorted(merge_repeats(events), key=lambda event: event.line)
    for recording, local, task in recorded:
        recording.rank = whose.rank(recording.rank, recording.host, local, task)
        restarted = any(event.attempt for event in events)
        recording.attempt = attempt if attempt is not None else recording.attempt if restarted else None
        reading.recordings.append(recording)
        reading.notes.extend(recording.notes)
    return reading


def _of_spawned(events: list[Event]) -> list[Event]:
    """Return the events with the traceback that the parent of `mp.spawn` prints of a process as that process's."""
    for place, (before, event) in enumerate(pairwise(events), 1):
        spawned = isinstance(before, Exit) and before.via == "spawn" and before.local_rank is not None
        if spawned and isinstance(event, RankException) and event.rank is None and event.local_rank is None:
            events[place] = replace(event, local_rank=before.local_rank)
    return events


class _Whose:
    """Whose a line is, by its own prefix, by what other lines of the log map, or by the path."""

    def __init__(self, reading: LogReading, writers: tuple[int, ...], tasks_are_ranks: bool) -> None:
        self._reading = reading
        self._only = writers[0] if len(writers) == 1 else None
        self._tasks_are_ranks = tasks_are_ranks

    def rank(self, rank: int | None, host: str | None, local: int | None, task: int | None) -> int | None:
        """Return the global rank, or None."""
        reading = self._reading
        if rank is not None:
            return rank
        if local is not None:
            known = reading.local_to_global
            mapped = known.get((host or "", local))
            if mapped is None:
                candidates = {value for (_, number), value in known.items() if number == local}
                mapped = candidates.pop() if len(candidates) == 1 else None
            return mapped
        if task is not None:
            return task if self._tasks_are_ranks else None
        if reading.rank is not None:
            return reading.rank
        return self._only if reading.local_rank is not None else None

    def event(self, event: Event) -> Event:
        """Return the event with its rank, and with the path's local rank where it has none."""
        local = event.local_rank
        if (
            local is None
            and event.rank is None
            and self._reading.local_rank is not None
            and not isinstance(event, CleanupSignal)
        ):
            return replace(event, rank=self._only, local_rank=self._reading.local_rank)
        if event.by_launcher and local is None and event.task is None:
            return event  # a launcher's line speaks of others, whoever's file it stands in
        return replace(event, rank=self.rank(event.rank, event.host, local, event.task))


def _local_ranks(
    events: Sequence[Event], recorded: Sequence[tuple[Recording, int | None, int | None]]
) -> dict[tuple[str, int], int]:
    """Return (host or "", local rank) -> global rank, without those that the log contradicts."""
    seen: dict[tuple[str, int], set[int]] = {}
    for event in events:
        local = event.local_rank
        if local is not None and event.rank is not None:
            seen.setdefault((event.host or "", local), set()).add(event.rank)
    for recording, local, _ in recorded:
        if local is not None and recording.rank is not None:
            seen.setdefault((recording.host or "", local), set()).add(recording.rank)
    return {key: ranks.copy().pop() for key, ranks in sorted(seen.items()) if len(ranks) == 1}


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
    for event in events:
        task = event.task
        if task is None:
            continue
        if event.rank is not None and event.rank != task:
            return False
        if event.local_rank is not None or _of_an_agent(event):
            return False
    return True


def _of_an_agent(event: Event) -> bool:
    """Return whether torchrun's agent printed this."""
    if isinstance(event, Exit) and event.via in {"agent", "table"}:
        return True
    return isinstance(event, (Exit, CleanupSignal)) and event.agent is not None
