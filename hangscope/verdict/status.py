"""Whether a job hangs at all: proof that nothing does, and signs that it still moved while its dumps were made."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection

from hangscope.causes.case import Case
from hangscope.events import Event
from hangscope.explain.finding import Lagging
from hangscope.incident import State
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd, JobCompleted, WorkersEnded, WorkersSwept
from hangscope.ingest.job_logs.faults import CudaError, NoProgress, OomCuda, OomHost, Xid
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


def still_moves(case: Case, named: Collection[int]) -> bool:
    """Return whether the job may have moved on while its dumps were made.

    So it may where no line tells of trouble, and as many of the ranks that were seen are in no call as wait in one, or all. `named`
    are the ranks (global) that are to blame. Who stops lets all wait that need it, within moments; dumps of a moving job,
    made seconds apart, show a call here and a gap there, or devices here and there that lag by a call.
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
    alone = free == set(named) and len(free) == 1
    return not alone and len(free) >= len(waiting) and not trouble(case)


def ended_well(case: Case) -> bool:
    """Return whether the whole job ended with exit code 0 by its launcher's word, whatever dumps show that were made before.

    One agent's word tells of its own workers: it is the whole job's where all ranks speak in its log alone, or where nearly all
    wait, and among them one of its.
    """
    statements = case.statements
    if trouble(case, StoreUnreachable):  # who leaves before rank 0 does may find its store gone
        return False
    agents = [e for e in statements.all(WorkersEnded) if not e.of_a_script]
    told = {e.everywhere for e in agents}
    if statements.all(JobCompleted) or len(told) == 2:
        return True
    if not case.graph.waiting:
        return any(_is_the_end_of_all(case, e) for e in statements.all(WorkersEnded))
    hosts = Counter(r.host for r in case.incident.ranks.values() if r.host)
    free = len(case.incident.ranks) - len(case.graph.waiting)
    return False in told and free < max([2, *hosts.values()])


def _is_the_end_of_all(case: Case, end: WorkersEnded) -> bool:
    """Return whether all ranks speak in the log of a good end, in no other one, and not behind it."""
    ranks = sorted(case.incident.ranks)
    spoken = [[e for e in case.incident.ranks[r].events if not e.by_launcher] for r in ranks]
    before = all(
        events and all(e.file == end.file and (e.line < end.line or not end.of_a_script) for e in events)
        for events in spoken
    )
    return bool(ranks) and ranks == list(range(len(ranks))) and before


def trouble(case: Case, *harmless: type[Event]) -> bool:
    """Return whether a line tells of an error, a timeout or an end, kinds that are `harmless` here apart."""
    told = case.statements.all(*(kind for kind in _TROUBLE if kind not in harmless))
    return any(not (isinstance(e, Exit) and e.code == 0) for e in told)


def status_without_verdict(case: Case) -> str:
    """Return no_hang only with positive proof, else inconclusive."""
    incident, statements = case.incident, case.statements
    if trouble(case) or case.graph.waiting or damaged_files(incident):
        return "inconclusive"
    ranks = incident.ranks.values()
    # Under DETAIL the call that mismatches is never dispatched, so it is missing from every dump alike.
    blind = any(n.code == "detail_recording" for n in incident.notes)
    all_seen = not blind and bool(incident.ranks) and all(r.seen and r.dump_file for r in ranks)
    logged = any(f != r.dump_file for r in ranks for f in r.files)
    all_seen = all_seen and (logged or not _half_retired(case))
    all_exited = bool(incident.ranks) and all(r.rank in statements.left_quietly for r in ranks)
    return "no_hang" if (all_seen and _equal_frontiers(case)) or all_exited else "inconclusive"


def _half_retired(case: Case) -> bool:
    """Return whether some members retired their last call on gloo and others did not: done or failed, it does not tell."""
    states: dict[tuple[int, int], set[bool]] = defaultdict(set)
    for record in case.incident.ranks.values():
        for gid, queue in record.queues.items():
            if len(queue) and case.incident.kinds.without_sizes(int(queue.kind[-1])).backend == "gloo":
                states[(gid, int(queue.seq[-1]))].add(int(queue.state[-1]) == State.PENDING)
    return any(len(found) > 1 for found in states.values())


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
        if len(ends) > 1 and not any(
            r in case.incident.ranks and group.gid in case.incident.ranks[r].p2p for r in group.ranks
        ):
            return False
    return made
