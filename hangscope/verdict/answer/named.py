"""Whom others name: in a monitored barrier, a stall report of Horovod, announcements of members, HCCL, a store's key."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hangscope.causes.case import Case
from hangscope.explain.text.group_size import world_size
from hangscope.explain.text.known_messages import listed
from hangscope.ingest.job_logs.launchers.starts import Announced
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.hccl import HcclTimeout
from hangscope.ingest.torch_logs.c10d import WatchdogTimeout
from hangscope.ingest.torch_logs.store import StoreTimeout, StoreUnreachable
from hangscope.ingest.torch_logs.store_barrier import StoreBarrier
from hangscope.ingest.torch_logs.wrapper import GlooTimeout, MonitoredBarrier, MonitoredBarrierWitness
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, ranks_phrase
from hangscope.model.regex import regex
from hangscope.verdict.answer.observation import Observation, lasted, others_of, who

_LIMIT = regex(r"monitoredBarrier in (\d{1,12}) ?ms")
_WAITED = regex(r"Timed out waiting (\d{1,12}) ?ms")
_SENDER = regex(
    r"(?:^|/)broadcast_from/(\d{1,7})/\d{1,9}$"
)  # vllm/distributed/utils.py, StatelessProcessGroup
_TAG = regex(r"tag: ?\[([\w:.-]{1,100})\]|tag\[([\w:.-]{1,100})\]")
_ERRNO = regex(r"\(errno: ([^()]{3,60})\)")
_LOST = regex(r"(?i)connection reset|broken pipe|recv, got 0 bytes|connection was closed")
_UNIQUE_ID = regex(r"ncclUniqueId from \[(\d{1,7})\]")
_SECONDS = regex(r"after (\d{1,9}) seconds")
_STALLED = regex(r"for more than (\d{1,9}) seconds")
_OPS = ("broadcast", "allreduce", "allgather", "alltoall", "reducescatter")
_OF_A_NODE = (2, 4, 8, 16)  # ranks


def barrier(case: Case) -> Observation | None:
    """Read whom a monitored barrier did not see."""
    told = case.statements.all(MonitoredBarrier)
    absent = sorted({r for e in told for r in e.absent})
    if witnesses := case.statements.all(MonitoredBarrierWitness) if not absent else ():
        return _of_witnesses(case, witnesses)
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
    return Observation(
        shows, means, Collect(tuple(absent), "log", text), tuple(absent), True, True, tuple(told)
    )


def _of_witnesses(case: Case, told: Sequence[MonitoredBarrierWitness]) -> Observation:
    """Read ranks that reached the barrier and got no answer from the rank that leads it."""
    reached = sorted({r for e in told if (r := e.rank if e.rank is not None else e.group_rank) is not None})
    lead = sorted({e.from_group_rank for e in told})
    limit = next((m for e in case.statements.all(GlooTimeout) if (m := _WAITED.search(e.text))), None)
    span = f" and waited {lasted(int(limit[1]))}" if limit else ""
    shows = (
        f"{who(reached)} reached the monitored barrier{span} for {ranks_phrase(lead)}, which did not answer"
    )
    means = f"{who(reached).capitalize()} {agree(reached or (0,), 'is a witness', 'are witnesses')}; {ranks_phrase(lead)} {agree(lead, 'leads', 'lead')} the barrier and may still be busy with work of its own, have failed, or wait for somebody else there."
    text = f"the log of {ranks_phrase(lead)} at that time, which names the ranks that did not come; if it is alive, its stack (py-spy dump): work that it does alone before the barrier (data, download, checkpoint)"
    suspects = tuple(r for r in lead if r not in reached)
    return Observation(shows, means, Collect(suspects, "log", text), suspects, True, False, tuple(told))


def horovod(case: Case) -> Observation | None:
    """Read without whom Horovod's tensors wait."""
    told = case.statements.all(HorovodStall)
    if not told:
        return None
    missing = sorted({r for e in told for r in e.missing}) or _not_ready(told, world_size(case.statements))
    by_rank = next((e.by_rank for e in reversed(told) if e.by_rank), ())
    if not missing and len(by_rank) > 1:
        return _at_odds(told, dict(by_rank))
    what = next((e.tensors for e in reversed(told) if e.tensors), ())
    kinds = sorted({op for name in what for op in _OPS if op in name.lower()})
    names = f" ({', '.join(what[:2])}{', ...' if len(what) > 2 else ''})" if what else ""
    limit = _STALLED.search(told[0].text)
    span = f" for more than {limit[1]} s" if limit else ""
    if not missing:
        shows = f"Horovod's stall check lists tensors{names} that wait for different ranks{span}"
        means = "The ranks submit different tensors, or in different orders."
        text = "a stack of every rank (py-spy dump), and which tensors each of them has submitted"
        return Observation(shows, means, Collect((), "stack", text), (), True, False, tuple(told))
    op = f"{kinds[0]} " if kinds else ""
    shows = f"Horovod's stall check says that {ranks_phrase(missing)} {agree(missing, 'has', 'have')} not submitted {op}tensors{names}, for which the other ranks have waited{span}"
    means = f"{ranks_phrase(missing).capitalize()} {agree(missing, 'is', 'are')} still busy, skipped the call, or ended; which of these the warning cannot tell."
    if "broadcast" in kinds and 0 in missing:
        means += " Rank 0 usually is the source of a broadcast, so nobody goes on until it comes."
    text = f"a stack of {ranks_phrase(missing)} now (py-spy dump): code that {agree(missing, 'this rank runs alone', 'only these ranks run')} before the call (if rank == 0: data, download, checkpoint)"
    return Observation(
        shows, means, Collect(tuple(missing), "stack", text), tuple(missing), True, True, tuple(told)
    )


def _not_ready(told: Sequence[HorovodStall], world: int | None) -> list[int]:
    """Return the ranks of a job of known size that no tensor is ready on, where all tensors are ready on the same ranks."""
    ready = {e.ready for e in told if e.ready}
    return sorted(others_of(world, ready.pop())) if len(ready) == 1 else []


def _at_odds(told: Sequence[HorovodStall], by_rank: Mapping[int, tuple[str, ...]]) -> Observation:
    """Read ranks that lack different tensors: each side waits for what the other one has not submitted."""
    sides: dict[tuple[str, ...], list[int]] = {}
    for rank, names in sorted(by_rank.items()):
        sides.setdefault(names, []).append(rank)
    parts = [
        f"{ranks_phrase(ranks)} {agree(ranks, 'has', 'have')} not submitted {', '.join(names[:3])}"
        for names, ranks in sides.items()
    ]
    few, many = min(sides.values(), key=len), max(sides.values(), key=len)
    theirs = next((names[0] for names, ranks in sides.items() if ranks is many), "")
    suspects = tuple(few) if len(few) < len(many) else tuple(sorted(by_rank))
    means = (
        "Each side waits for what the other has not submitted: they are at different places of the program."
    )
    if len(few) < len(many):
        means = f"Each side waits for the other: {ranks_phrase(few)} alone {agree(few, 'is', 'are')} where {theirs} is submitted, and the others are elsewhere."
    text = f"a stack of {ranks_phrase(few)} and of one other rank (py-spy dump): which branch, validation or extra call leads {agree(few, 'it', 'them')} there"
    return Observation(
        f"Horovod's stall check: {'; '.join(parts[:3])}",
        means,
        Collect(suspects, "stack", text),
        suspects,
        True,
        len(few) < len(many),
        tuple(told),
    )


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
    return Observation(shows, means, Collect(missing, "other", text), missing, events=tuple(told))


def hccl(case: Case) -> Observation | None:
    """Read the remote rank that HCCL waited for."""
    told = [e for e in case.statements.all(HcclTimeout) if e.peer_group_rank is not None]
    if not told:
        return None
    ranks = sorted({e.peer_group_rank for e in told if e.peer_group_rank is not None})
    waited = sorted({e.rank for e in told if e.rank is not None})
    kinds = listed(sorted({e.what for e in told}))
    tag = next((f", in {m[1] or m[2]}" for e in told if (m := _TAG.search(e.text))), "")
    shows = f"HCCL on {who(waited)} timed out ({kinds}) waiting for remote {ranks_phrase(ranks)} of its group{tag}"
    means = "The rank that prints this is a witness; the remote one is to be looked at (the number counts within the group)."
    text = f"the plog and the stack of remote {ranks_phrase(ranks)}"
    return Observation(shows, means, Collect((), "log", text), (), True, False, tuple(told))


def store(case: Case) -> Observation | None:
    """Read what a wait for the store, or for a key in it, was for."""
    barriers = [e for e in case.statements.all(StoreBarrier) if e.joined is not None and e.world_size]
    short = [e for e in barriers if (e.joined or 0) < (e.world_size or 0)]
    if short:
        first = short[0]
        missing = (first.world_size or 0) - (first.joined or 0)
        ranks = sorted({e.rank for e in short if e.rank is not None})
        waited = (
            f"; {ranks_phrase(ranks)} waited there and {agree(ranks, 'is a witness', 'are witnesses')}"
            if ranks
            else ""
        )
        shows = f"only {first.joined} of {first.world_size} ranks joined the store based barrier of the start{waited}"
        means = f"{missing} rank{'s' if missing > 1 else ''} never came to init_process_group or to that group; which of them the barrier cannot tell."
        if missing in _OF_A_NODE:
            means += f" {missing} is as many as a node often has."
        text = "the first lines of every node's log: whose ranks never print that they wait in the barrier"
        return Observation(shows, means, Collect((), "log", text), (), not first.waiting, False, tuple(short))
    for e in case.statements.all(StoreTimeout):
        if e.joined is not None and e.expected:
            limit = _SECONDS.search(e.text)
            span = f" after {limit[1]} s" if limit else ""
            shows = f"only {e.joined} of {e.expected} ranks joined when the store's host gave up{span}"
            missing = e.expected - e.joined
            means = f"{missing} process{'es' if missing > 1 else ''} never connected; which of them the store cannot tell."
            text = "the first lines of every node's log: the node whose ranks print nothing is the one"
            return Observation(shows, means, Collect((), "log", text), (), True, False, (e,))
    keyed = [e for e in case.statements.all(StoreTimeout) if e.key]
    if keyed:
        key = keyed[0].key or ""
        peer = keyed[0].waited_rank
        sender = _SENDER.search(key) or _UNIQUE_ID.search(keyed[0].text)
        peer = int(sender[1]) if peer is None and sender is not None else peer
        whose = f", which rank {peer} writes" if peer is not None else ""
        shows = f"{who(sorted({e.rank for e in keyed if e.rank is not None}))} timed out waiting for the store's key {key[:120]}{whose}"
        means = (
            "Whoever writes that key never came to the same call: it failed, is late, or is in another one."
        )
        if any(_LOST.search(e.text) for e in keyed):
            shows = shows.replace("timed out waiting for", "lost the store while waiting for")
            means = "The process that serves the store, usually rank 0, ended or closed it first: look at its end and not at this one."
        suspects = (peer,) if peer is not None else ()
        of = ranks_phrase(suspects) if suspects else "the ranks that print no such timeout"
        text = f"the log of {of} up to that moment"
        return Observation(shows, means, Collect(suspects, "log", text), suspects, True, False, tuple(keyed))
    return _unreachable(case)


def _unreachable(case: Case) -> Observation | None:
    told = [e for e in case.statements.all(StoreUnreachable) if e.what != "store gone" and e.store_host]
    if not told:
        return None
    first, size = told[0], world_size(case.statements)
    mesh = any(e.what == "peer" for e in told)
    said = (e.rank for e in (*told, *(case.statements.all(Announced) if mesh else ())))
    ranks = sorted({rank for rank in said if rank is not None})
    subject = who(ranks, "a process") + (f" of {size}" if size and ranks else "")
    at = f"{first.store_host}:{first.port}" if first.port else str(first.store_host)
    what = "could not complete gloo's full mesh: no connection to" if mesh else "could not reach the store at"
    shows = f"{subject} {what} {at}"
    means = "This is a failure of the start and not of the training: nothing listens there, the address is wrong, or a firewall is between."
    if (first.store_host or "").startswith(("127.", "localhost")) and mesh:
        means = "The address is the loopback: if the ranks are on several hosts, processes advertise 127.0.0.1 and cannot reach each other."
    if (why := next((m for e in told if (m := _ERRNO.search(e.text))), None)) is not None:
        shows += f" ({why[1].strip()})"
    text = f"whether the process that serves {at} was started and listens there (ss -ltn), and from one of these hosts: nc -vz {first.store_host} {first.port or 'PORT'}"
    if mesh:
        text = "GLOO_SOCKET_IFNAME (or NCCL_SOCKET_IFNAME) and what each host's own name resolves to, on every node"
    return Observation(shows, means, Collect((), "other", text), (), True, False, tuple(told))
