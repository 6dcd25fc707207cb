"""What the inputs contradict although no rule excludes it: calls that nobody could make yet, or that a rank did make like its peers. Ranks are global."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.waitgraph import Instance
from hangscope.causes.case import Case
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.incident import Incident, Queue
from hangscope.model.rankset import agree, ranks_phrase

#: causes by which a rank did not make a call that its peers made
_BEHIND = frozenset({"rank_conditional_collective", "uneven_loader", "stuck_rank", "slow_rank"})


def contradicted(case: Case, verdict_cause: str, cause: str, ranks: Sequence[int]) -> str:
    """Return the fact that contradicts a cause of these ranks, empty where none is known."""
    collective = cause == "collective_mismatch" or CATALOG[cause].of_collectives
    if verdict_cause == "init_hang" and collective and not _has_called(case):
        return "the ranks were still joining, and no collective is known"
    if (
        cause in _BEHIND
        and ranks
        and _waits_are_issued(case, ranks)
        and all(_kept_up(case.incident, rank) for rank in ranks)
    ):
        return f"{ranks_phrase(ranks)} {agree(ranks, 'has', 'have')} issued every collective that the others of the groups issued"
    return ""


def _has_called(case: Case) -> bool:
    """Return whether a collective, or a step of a loop, is known of any rank."""
    if any(record.queues or record.p2p for record in case.incident.ranks.values()):
        return True
    steps = any(event.step is not None for event in case.statements.all(Progress))
    return steps or bool(case.statements.all(WatchdogTimeout, WatchdogStatus, CallFingerprint))


def _waits_are_issued(case: Case, ranks: Sequence[int]) -> bool:
    """Return whether each of these ranks issued every known collective that the others wait in, and none of the others waits in an unknown one."""
    others = [call for rank, calls in case.graph.open_calls.items() if rank not in ranks for call in calls]
    for call in others:
        if not isinstance(call.node, Instance):
            return False
        for rank in ranks:
            record = case.incident.ranks.get(rank)
            queue = record.queues.get(call.node.gid) if record is not None else None
            if queue is not None and call.node.seq > int(queue.seq.max(initial=0)):
                return False
    records = [case.incident.ranks[rank] for rank in ranks if rank in case.incident.ranks]
    # NCCL prints a line for each call and none for its end, so that nobody is seen to wait.
    printed = all(
        not queue.tells_completion and not queue.told for r in records for queue in r.queues.values()
    )
    return bool(others) or printed


def _kept_up(incident: Incident, rank: int) -> bool:
    """Return whether all other members of a rank's groups were seen, and none issued another collective, or one more or fewer, than it."""
    own = incident.ranks[rank].queues if rank in incident.ranks else {}
    shared = 0
    for gid, queue in own.items():
        peers = [peer for peer in incident.groups[gid].ranks if peer != rank]
        found = [incident.ranks[peer].queues.get(gid) for peer in peers if peer in incident.ranks]
        if len(found) < len(peers) or None in found:
            return False
        # Ranks of one role share their columns: each of these is compared once.
        distinct = {(id(other.seq), id(other.kind)): other for other in found if other is not None}
        if not all(_alike(queue, other, incident) for other in distinct.values()):
            return False
        shared += len(peers)
    return shared > 0


def _alike(queue: Queue, other: Queue, incident: Incident) -> bool:
    """Return whether two members issued as many collectives, and the same ones as far as both are kept."""
    if not len(queue) or not len(other) or queue.cut or other.cut:
        return False
    calls, theirs = (
        {int(seq): incident.kinds[int(kind)].op for seq, kind in zip(q.seq, q.kind, strict=True)}
        for q in (queue, other)
    )
    return max(calls) == max(theirs) and all(
        calls[seq] == theirs[seq] for seq in calls.keys() & theirs.keys()
    )
