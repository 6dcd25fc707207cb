"""How many ranks the inputs tell the job to have at least."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangscope.ingest.job_logs.announced import Announced
from hangscope.ingest.job_logs.launchers.horovod import HorovodStall
from hangscope.ingest.nccl.init import NcclInit
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.ingest.nccl.unmade import UnmadeCommunicator
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport, AnalyzerUndecided
from hangscope.ingest.torch_logs.debug_pages import NoAnswer
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.store import DdpParams, StoreTimeout
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier
from hangscope.ingest.workers.reading import Reading
from hangscope.model.events import Event


def sizes(event: Event) -> Iterator[int]:
    """Yield numbers of ranks that an event tells the job to have at least."""
    told: list[int | None] = []
    if isinstance(event, StoreTimeout):
        told = [event.expected]
    elif isinstance(event, (StoreBarrier, Announced)):
        told = [event.world_size]
    elif isinstance(event, NcclRas):
        told = [event.nranks]
        if event.what in ("missing", "dead") and event.comm_rank is not None and event.pid:
            told.append(event.comm_rank + 1)  # without a process it is what 2.27 found in memory
    elif isinstance(event, NoAnswer):
        told = [event.world]
    elif isinstance(event, (NcclInit, UnmadeCommunicator)):
        told = [event.nranks]
    elif isinstance(event, HorovodStall):
        told = [rank + 1 for rank in event.missing]
    elif isinstance(event, AnalyzerUndecided):
        told = [rank + 1 for rank in event.unseen]
    elif isinstance(event, AnalyzerReport):
        told = [rank + 1 for rank in (*event.named, *event.expected)]
    else:
        named: list[int | None] = [event.group_rank]
        if isinstance(event, MonitoredBarrier):
            named += event.absent
        elif isinstance(event, Desync):
            for ranks in (
                event.never_joined,
                *event.not_joined.values(),
                *event.joined_not_finished.values(),
            ):
                named += ranks
        elif isinstance(event, DdpParams):
            named += event.counts
        elif isinstance(event, CallFingerprint):
            named.append(event.peer_group_rank)
        told = [n + 1 for n in named if n is not None]
    yield from (n for n in told if n is not None and n <= MAX_RANKS)


def size_in_content(readings: Sequence[Reading]) -> int:
    """Return the size that dumps, stores and communicators name; 0 where none does. Names of files do not count."""
    told = [0]
    for reading in readings:
        for recording in reading.recordings:
            told += [max(ranks) + 1 for _, ranks in recording.config.values() if ranks]
        for event in reading.all_events:
            if isinstance(event, (StoreTimeout, StoreBarrier, NcclInit, NcclRas)):
                told += sizes(event)
    return max(told)
