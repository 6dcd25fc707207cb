"""Whom others name: in a monitored barrier, a stall report of Horovod, announcements of members, HCCL, a store's key."""

from __future__ import annotations

from collections import Counter

from hangscope.causes.case import Case
from hangscope.conclusion import Collect
from hangscope.explain.text.group_size import world_size
from hangscope.ingest.job_logs.announced import Announced
from hangscope.ingest.job_logs.launchers.horovod import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.hccl import HcclTimeout
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier
from hangscope.rankset import agree, ranks_phrase
from hangscope.regex import regex
from hangscope.verdict.answer.observation import Observation, lasted, others_of, who

_LIMIT = regex(r"monitoredBarrier in (\d{1,12}) ?ms")
_SENDER = regex(
    r"(?:^|/)broadcast_from/(\d{1,7})/\d{1,9}$"
)  # vllm/distributed/utils.py, StatelessProcessGroup
_OF_A_NODE = (2, 4, 8, 16)  # ranks


def barrier(case: Case) -> Observation | None:
    """Read whom a monitored barrier did not see."""
    told = case.statements.all(MonitoredBarrier)
    absent = sorted({r for e in told for r in e.absent})
    if not told or not absent:
        return None
    limit = _LIMIT.search(told[0].text)
    span = f" after {lasted(int(limit[1]))}" if limit else ""
    reporter = next((r for e in told if (r := e.rank if e.rank is not None else e.group_rank) is not None), 0)
    shows = f"the monitored barrier of rank {reporter} gave up{span}: {ranks_phrase(absent)} did not reach it"
    means = f"Why {agree(absent, 'it was', 'they were')} absent is not in the text: dead, stuck, cut off, or in another call."
    if (
        len(absent) in _OF_A_NODE
        and absent[0] % len(absent) == 0
        and absent[-1] - absent[0] == len(absent) - 1
    ):
        means = f"They are {len(absent)} consecutive ranks, which suggests one node (or half of one) that is down, stuck or cut off. {means}"
    text = f"the logs of {ranks_phrase(absent)}; if their host is alive, their stacks (py-spy dump)"
    return Observation(shows, means, Collect(tuple(absent), "log", text), tuple(absent), True, True)


def horovod(case: Case) -> Observation | None:
    """Read without whom Horovod's tensors wait."""
    told = case.statements.all(HorovodStall)
    missing = sorted({r for e in told for r in e.missing})
    if not told:
        return None
    what = next((e.tensors for e in reversed(told) if e.tensors), ())
    kinds = sorted(
        {
            op
            for name in what
            for op in ("broadcast", "allreduce", "allgather", "alltoall")
            if op in name.lower()
        }
    )
    names = f" ({', '.join(what[:2])}{', ...' if len(what) > 2 else ''})" if what else ""
    op = f"{kinds[0]} " if kinds else ""
    if not missing:
        shows = f"Horovod's stall check lists {op}tensors{names} that wait for different ranks"
        return Observation(
            shows,
            "The ranks submit different tensors, or in different orders.",
            Collect((), "stack", "a stack of every rank (py-spy dump)"),
            (),
            True,
        )
    shows = f"Horovod's stall check says that {ranks_phrase(missing)} {agree(missing, 'has', 'have')} not submitted {op}tensors{names} that the other ranks wait with"
    means = f"{ranks_phrase(missing).capitalize()} {agree(missing, 'is', 'are')} still busy, skipped the call, or ended; which of these the warning cannot tell."
    if "broadcast" in kinds and 0 in missing:
        means += " Rank 0 usually is the source of a broadcast, so nobody goes on until it comes."
    text = f"a stack of {ranks_phrase(missing)} now (py-spy dump): code that only this rank runs before the call (if rank == 0: data, download, checkpoint)"
    return Observation(shows, means, Collect(tuple(missing), "stack", text), tuple(missing), True, True)


def announced(case: Case) -> Observation | None:
    """Read which ranks said that they came, of how many."""
    told = [e for e in case.statements.all(Announced) if e.rank is not None]
    world = max((e.world_size for e in told if e.world_size), default=None) or world_size(case.statements)
    times = Counter(e.rank for e in told if e.rank is not None)
    if world is None or not times or case.statements.all(Progress, WatchdogTimeout, StoreUnreachable):
        return None
    came, missing = sorted(times), others_of(world, times)
    if not missing and len(came) >= world:
        return None
    shows = f"{len(came)} of {world} members announced themselves ({ranks_phrase(came)})"
    means = "The rendezvous waits for members that have not come."
    if len(came) > 1 and min(times.values()) > 1:
        shows += ", each of them twice or more with the same number"
        means = "Processes of different nodes carry the same ranks (the same node rank), so the others never come; or each line was logged twice."
    if missing:
        shows += f"; {ranks_phrase(missing)} did not"
    text = "NODE_RANK (or SLURM_NODEID), MASTER_ADDR and WORLD_SIZE as each node was started with them"
    return Observation(shows, means, Collect(missing, "other", text), missing)


def hccl(case: Case) -> Observation | None:
    """Read the remote rank that HCCL waited for."""
    told = [e for e in case.statements.all(HcclTimeout) if e.peer_group_rank is not None]
    if not told:
        return None
    ranks = sorted({e.peer_group_rank for e in told if e.peer_group_rank is not None})
    waited = sorted({e.rank for e in told if e.rank is not None})
    shows = f"HCCL on {who(waited)} timed out waiting for remote {ranks_phrase(ranks)} of its group"
    means = "The rank that prints this is a witness; the remote one is to be looked at (the number counts within the group)."
    text = f"the plog and the stack of remote {ranks_phrase(ranks)}"
    return Observation(shows, means, Collect((), "log", text), (), True)


def store(case: Case) -> Observation | None:
    """Read what a wait for the store, or for a key in it, was for."""
    for barrier in case.statements.all(StoreBarrier):
        if barrier.joined is not None and barrier.world_size and barrier.joined < barrier.world_size:
            missing = barrier.world_size - barrier.joined
            shows = (
                f"{barrier.joined} of {barrier.world_size} ranks reached the store based barrier of the start"
            )
            means = f"{missing} rank{'s' if missing > 1 else ''} never came to init_process_group or to that group; which of them the barrier cannot tell."
            text = (
                "the first lines of every node's log: whose ranks never print that they wait in the barrier"
            )
            return Observation(shows, means, Collect((), "log", text), (), not barrier.waiting)
    for e in case.statements.all(StoreTimeout):
        if e.joined is not None and e.expected:
            shows = f"the store's host gave up waiting: {e.joined} of {e.expected} ranks joined"
            missing = e.expected - e.joined
            means = f"{missing} process{'es' if missing > 1 else ''} never connected; which of them the store cannot tell."
            return Observation(
                shows,
                means,
                Collect(
                    (),
                    "log",
                    "the first lines of every node's log: the node whose ranks print nothing is the one",
                ),
                (),
                True,
            )
    keyed = [e for e in case.statements.all(StoreTimeout) if e.key]
    if keyed:
        key = keyed[0].key or ""
        peer = keyed[0].waited_rank
        if peer is None and (sender := _SENDER.search(key)) is not None:
            peer = int(sender[1])
        whose = f", which rank {peer} writes" if peer is not None else ""
        shows = f"{who(sorted({e.rank for e in keyed if e.rank is not None}))} timed out waiting for the store's key {key[:120]}{whose}"
        means = (
            "Whoever writes that key never came to the same call: it failed, is late, or is in another one."
        )
        suspects = (peer,) if peer is not None else ()
        of = ranks_phrase(suspects) if suspects else "the ranks that print no such timeout"
        return Observation(
            shows, means, Collect(suspects, "log", f"the log of {of} up to that moment"), suspects, True
        )
    return _unreachable(case)


def _unreachable(case: Case) -> Observation | None:
    told = [e for e in case.statements.all(StoreUnreachable) if not e.what and e.store_host]
    if not told:
        return None
    first, size = told[0], world_size(case.statements)
    mesh = any("connectFullMesh" in e.text for e in case.statements.all(StoreUnreachable))
    said = (e.rank for e in (*told, *(case.statements.all(Announced) if mesh else ())))
    ranks = sorted({rank for rank in said if rank is not None})
    subject = who(ranks, "a process") + (f" of {size}" if size and ranks else "")
    at = f"{first.store_host}:{first.port}" if first.port else str(first.store_host)
    what = "could not complete gloo's full mesh: no connection to" if mesh else "could not reach the store at"
    shows = f"{subject} {what} {at}"
    means = "This is a failure of the start and not of the training: nothing listens there, the address is wrong, or a firewall is between."
    if (first.store_host or "").startswith(("127.", "localhost")) and mesh:
        means = "The address is the loopback: if the ranks are on several hosts, processes advertise 127.0.0.1 and cannot reach each other."
    text = "GLOO_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME), MASTER_ADDR and what each host's own name resolves to, on every node"
    return Observation(shows, means, Collect((), "other", text), (), True)
