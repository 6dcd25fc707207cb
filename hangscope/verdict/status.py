"""Whether a job hangs at all: proof that nothing does, and signs that it still moved while its dumps were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from hangscope.causes.case import Case
from hangscope.events import Event
from hangscope.explain.finding import Lagging
from hangscope.ingest.job_logs.deepspeed import Spawned
from hangscope.ingest.job_logs.endings import (
    Exit,
    ExitOk,
    ExternalEnd,
    JobCompleted,
    WorkersEnded,
    WorkersSwept,
)
from hangscope.ingest.job_logs.faults import CudaError, NoProgress, OomCuda, OomHost, Xid
from hangscope.ingest.job_logs.good_ends import Served
from hangscope.ingest.job_logs.printed import PrintedTail
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.job_logs.ray import WorkerDied
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import AsyncError, HeartbeatTimeout, WatchdogTimeout
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.store import DdpUnused, RendezvousTimeout, StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, GlooClosed, GlooTimeout, MonitoredBarrier
from hangscope.verdict.damage import damaged_files

#: What no job leaves that only moves: an error, a timeout or an end.
_TROUBLE = (
    RankException, Exit, GlooTimeout, GlooClosed, WatchdogTimeout, Terminate, CallFingerprint, MonitoredBarrier, StoreTimeout,
    NcclWarn, ExternalEnd, HeartbeatTimeout, Desync, AsyncError, NoProgress, RendezvousTimeout, StoreUnreachable, CudaError, Xid,
    OomCuda, OomHost, DdpUnused, WorkersSwept, WorkerDied,
)  # fmt: skip

_PER_HOST = frozenset({2, 4, 8, 16})  # devices


def still_moves(case: Case, named: Collection[int]) -> bool:
    """Return whether the job may have moved on while its dumps were made.

    So it may where no line tells of trouble, and as many of the ranks that were seen are in no call as wait in one, or all. `named`
    are the ranks (global) that are to blame. Who stops lets all wait that need it, within moments; dumps of a moving job,
    made seconds apart, show a call here and a gap there, or devices here and there that lag by a call: most wait for others.
    """
    if isinstance(case.finding, Lagging) and not case.finding.culprits:
        return not trouble(case)
    waiting = set(case.graph.waiting)
    view = case.finding.stuck.view
    early = view.early if view is not None else set()  # that a dump is older than its peers' is known already
    seen = {r.rank for r in case.incident.ranks.values() if r.seen and r.dump_file and r.rank not in early}
    free = seen - waiting
    if not waiting:
        return 0 < len(seen) == len(case.incident.ranks) and not trouble(case)
    lag = isinstance(case.finding, Lagging) and len(case.finding.culprits) > 1
    two = set[int]().union(*(root.explains for root in case.graph.roots[:2]))  # each of two faults is a part
    if 2 * max(case.finding.explained, 0 if lag else len(two)) < len(waiting):
        return not trouble(case)
    # Where as many dumps are older as show a wait, the one that lacks a call may be older as well.
    alone = free == set(named) and len(free) == 1 and len(early) < len(waiting)
    return not alone and len(free) >= len(waiting) and not trouble(case)


def ended_well(case: Case) -> bool:
    """Return whether the whole job ended with exit code 0 by its launcher's word, whatever dumps show that were made before.

    One agent's word tells of its own workers: it is the whole job's where all ranks speak in its log alone, or where nearly all
    wait, and among them one of its.
    """
    statements = case.statements
    if any(not _harmless_at_an_end(e) for e in _troubles(case)):
        return False
    agents = [e for e in statements.all(WorkersEnded) if not e.of_a_script]
    told = {e.everywhere for e in agents}
    if statements.all(JobCompleted) or len(told) == 2:
        return True
    if not case.graph.waiting:
        return (
            any(_is_the_end_of_all(case, e) for e in statements.all(WorkersEnded))
            or _all_processes_ended(case)
            or _all_took_their_leave(case)
        )
    hosts = Counter(r.host for r in case.incident.ranks.values() if r.host)
    free = len(case.incident.ranks) - len(case.graph.waiting)
    return False in told and free < max([2, *hosts.values()])


def serves(case: Case) -> bool:
    """Return whether a server answers in the last line that tells of its load, behind all that tells of a wait."""
    last = max(case.statements.all(Served), key=lambda e: (e.file, e.line), default=None)
    told = [e for events in case.statements.kinds.values() for e in events if not isinstance(e, Progress)]
    trouble = [e for e in _troubles(case) if not isinstance(e, NoProgress) and not _harmless_at_an_end(e)]
    behind = all(e.file == last.file and e.line <= last.line for e in told) if last is not None else False
    return last is not None and last.well and behind and not trouble and not case.graph.waiting


def _is_the_end_of_all(case: Case, end: WorkersEnded) -> bool:
    """Return whether all ranks speak in the log of a good end, in no other one, and not behind it; of whom it counts all, those who speak."""
    ranks = sorted(case.incident.ranks)
    spoken = [[e for e in case.incident.ranks[r].events if not e.by_launcher] for r in ranks]
    before = all(
        (events or (end.of_a_script and end.everywhere))
        and all(e.file == end.file and (e.line <= end.line or not end.of_a_script) for e in events)
        for events in spoken
    )
    if end.of_a_script and end.everywhere:
        others = [e for events in case.statements.kinds.values() for e in events if e.rank is None]
        return before and all(e.file == end.file and e.line <= end.line for e in others)
    return bool(ranks) and ranks == list(range(len(ranks))) and before


def _all_processes_ended(case: Case) -> bool:
    """Return whether a launcher told of all its processes that they ended well: of those that it said to start.

    Where the text holds their ends alone, those are as many as hosts have devices, and follow each other.
    """
    ended = {e.pid for e in case.statements.all(ExitOk) if e.pid is not None}
    started = {e.pid for e in case.statements.all(Spawned)}
    if started or not ended:
        return bool(started) and started <= ended
    row = len(ended) in _PER_HOST and max(ended) - min(ended) == len(ended) - 1
    last = min(e.line for e in case.statements.all(ExitOk))
    files = {e.file for events in case.statements.kinds.values() for e in events}
    told = [e for kind, events in case.statements.kinds.items() if not kind.calm for e in events]
    return row and len(files) == 1 and all(e.line < last for e in told)


def _all_took_their_leave(case: Case) -> bool:
    """Return whether the last that every rank printed is that its job is over, and no stack shows it anywhere."""
    ranks = case.incident.ranks
    if len(ranks) < 2 or sorted(ranks) != list(range(len(ranks))):
        return False
    for record in ranks.values():
        told = [e for e in record.events if not e.by_launcher and not isinstance(e, PrintedTail)]
        last = max(told, key=lambda e: e.line, default=None)
        if record.threads or not (isinstance(last, Progress) and last.over):
            return False
    return True


def _harmless_at_an_end(event: Event) -> bool:
    """Return whether jobs that end well print it: who leaves before rank 0 does may find its store gone, and NCCL its peers."""
    if isinstance(event, NcclWarn):
        return event.retrying or event.fault == "other"
    return isinstance(event, StoreUnreachable)


def trouble(case: Case) -> bool:
    """Return whether a line tells of an error, a timeout or an end."""
    return bool(_troubles(case))


def _troubles(case: Case) -> list[Event]:
    return [e for e in case.statements.all(*_TROUBLE) if not (isinstance(e, Exit) and e.code == 0)]


def status_without_verdict(case: Case) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident, statements = case.incident, case.statements
    if trouble(case) or case.graph.waiting or damaged_files(incident):
        return "inconclusive"
    ranks = incident.ranks.values()
    # Under DETAIL the call that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    all_seen = not blind and bool(incident.ranks) and all(r.seen and r.dump_file for r in ranks)
    all_exited = bool(incident.ranks) and all(r.rank in statements.left_quietly for r in ranks)
    return "no_hang" if (all_seen and _equal_frontiers(case)) or all_exited else "inconclusive"


def _equal_frontiers(case: Case) -> bool:
    """Return whether all members of every group stand at the same seq, with calls made at all."""
    made = False
    for group in case.incident.groups:
        ends = set()
        for rank in group.ranks:
            queue = case.incident.ranks[rank].queues.get(group.gid) if rank in case.incident.ranks else None
            ends.add(
                max(
                    int(queue.seq.max()) if queue is not None and len(queue) else 0,
                    (queue.frontier.enqueued or 0) if queue is not None else 0,
                )
            )
        made = made or bool(ends - {0})
        if len(ends) > 1:
            return False
    return made
