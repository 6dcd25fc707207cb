"""Faults from outside the script: devices, links, the rendezvous, preemption."""

from __future__ import annotations

from tests.simulator.calls import Compute, End, Print, Stack, Where
from tests.simulator.engine import Outcome
from tests.simulator.job import Job, Unsuitable
from tests.simulator.source import TORCH

from .stops import PROVING, traceback_lines


def gpu_stall(job: Job) -> None:
    """All calls are made; one rank's device (or one each of two replicas) stops after a call that its peers
    complete.
    """
    layout, rng = job.layout, job.rng
    ranks = [job.pick_rank()]
    if len(layout.replicas) > 2 and len(layout.replicas[0]) > 1 and rng.random() < 0.25:
        ranks = [rng.choice(replica) for replica in rng.sample(layout.replicas, 2)]
    epoch, step = job.pick_step()
    for rank in ranks:
        calls = [place for place, call in job.collectives(rank, epoch, step) if call.op in PROVING]
        if not calls:
            raise Unsuitable
        job.devices.dead[rank] = job.record_number(
            rank, calls[len(calls) // 2] if len(ranks) > 1 else rng.choice(calls)
        )
    if rng.random() < 0.35:
        rank = ranks[0]
        bus = f"PCI:0000:{16 + rank % layout.per_host:02x}:00"
        error = f"NVRM: Xid ({bus}): 79, pid={{pid{rank}}}, GPU has fallen off the bus."
        job.launcher_lines.append(f"[ 8123.{rng.randrange(10**6):06d}] {layout.host(rank)} kernel: {error}")
    job.blame(ranks, "gpu_stall")


def network_stall(job: Job) -> None:
    """All members made the call and none completes it; half of the time two ranks' transport says so."""
    rng, layout, rank = job.rng, job.layout, job.pick_rank()
    epoch, step = job.pick_step()
    calls = [
        (place, call)
        for place, call in job.collectives(rank, epoch, step)
        if call.op in PROVING and len({layout.host(member) for member in call.group.ranks}) > 1
    ]
    if not calls:
        raise Unsuitable
    place, call = rng.choice(calls)
    job.devices.broken.add((call.group.gid, job.seq_number(rank, place)))
    culprits: list[int] = []
    if rng.random() < 0.5:
        one = rng.choice(call.group.ranks)
        other = rng.choice([member for member in call.group.ranks if layout.host(member) != layout.host(one)])
        culprits = [one, other]
        for here, there in ((one, other), (other, one)):
            process = f"{layout.host(here)}:{{pid{here}}}:{{tid{here}}} [{here % layout.per_host}]"
            status = "status=12 opcode=0 len=0 vendor err 129 (Send)"
            peer = f"{layout.host(there)}<{40000 + there}>"
            said = f"NET/IB: Got completion from peer {peer} with {status} hca mlx5_{here % 4}"
            job.lines[here] = ["", f"{process} net_ib.cc:1905 NCCL WARN {said}"]
    job.blame(culprits, "network_stall")


def slow_network_card(job: Job) -> None:
    """One host's network card gets slower and slower: a call outlasts its timeout, and completes while dumps are made."""
    layout, rng, rank = job.layout, job.rng, job.pick_rank()
    epoch, step = job.pick_step()
    host = frozenset(r for r in range(layout.world_size) if layout.host(r) == layout.host(rank))
    calls = [
        (place, call)
        for place, call in job.collectives(rank, epoch, step)
        if call.op in PROVING and not host.issuperset(call.group.ranks)
    ]
    if not calls:
        raise Unsuitable
    place, call = rng.choice(calls)
    key = (call.group.gid, job.seq_number(rank, place))
    job.devices.late[key] = job.timeout + 1.2
    job.devices.slow, job.devices.factor = host, 10 ** rng.uniform(2, 4)
    job.devices.since = rng.uniform(0, step * job.plan.seconds)
    job.after = _look_while_it_completes
    job.blame([], "network_stall", "slow_rank")


def _look_while_it_completes(job: Job, outcome: Outcome) -> None:
    """Let the first timeout make all ranks dump, some of them after the call has completed at last."""
    ((gid, seq),) = job.devices.late
    members = [m for s in outcome.ranks for m in s.made if (m.gid, m.seq) == (gid, seq) and not m.is_p2p]
    job.alarm = alarm = min(made.created for made in members) + job.timeout
    job.taken = {rank: alarm + job.rng.uniform(0.1, 2.5) for rank in range(job.layout.world_size)}
    job.seen_until = alarm + 3


def init_hang(job: Job) -> None:
    """A rank never comes to the rendezvous; the others wait for it and say so."""
    size, where = job.layout.world_size, Where(-1, -1, "init")
    missing = job.rng.randrange(1, size)
    job.text_only = job.ended_together = True
    job.silent.add(missing)
    frames: Stack = (
        ("_create_c10d_store", f"{TORCH}/distributed/rendezvous.py", 198),
        ("init_process_group", f"{TORCH}/distributed/distributed_c10d.py", 1764),
        *job.source.at("setup"),
    )
    joined = (
        f"Timed out after {job.timeout + 1} seconds waiting for clients. {size - 1}/{size} clients joined."
    )
    waited = f"wait timeout after {job.timeout}000ms, keys: /worker/count"
    for rank in range(size):
        if rank == missing:
            job.cut(rank, 0, End(where, 0))
            continue
        error = f"torch.distributed.DistStoreError: {waited if rank else joined}"
        job.cut(
            rank,
            0,
            Print(f"[rank {rank}/{size}] init_process_group(backend=nccl, init_method=env://)", where),
            Compute(job.timeout, where),
            End(where, 1, traceback_lines(frames, error)),
        )
    job.blame([missing], "init_hang")


def preempted(job: Job) -> None:
    """The whole job is ended from outside."""
    epoch, step = job.pick_step()
    for rank in range(job.layout.world_size):
        job.cut(rank, job.within(rank, epoch, step)[-1], End(Where(epoch, step, "log"), -15))
    why = job.rng.choice(("DUE TO PREEMPTION", "DUE TO TIME LIMIT"))
    step_id = f"JOB {job.rng.randrange(10**5, 10**6)} ON {job.layout.host(0)}"
    job.launcher_lines.append(f"slurmstepd: error: *** {step_id} CANCELLED AT {{date}} {why} ***")
    job.ended_together = True
    job.blame([], "crashed_rank")
