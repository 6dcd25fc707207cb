"""A thread that writes checkpoints over a group of its own while training goes on."""

from __future__ import annotations

from tests.simulator.calls import Call, Join, Stack, Stall, Step, Where
from tests.simulator.job import Job
from tests.simulator.source import TORCH

from . import stops

_THREAD: Stack = (
    ("run", "/usr/lib/python3.11/threading.py", 982),
    ("_bootstrap_inner", "/usr/lib/python3.11/threading.py", 1045),
)
_WRITING: Stack = (("write_shard", "/workspace/train/checkpoint.py", 131),)


def async_checkpoint(job: Job) -> None:
    """Twice a thread saves while training goes on. Either a rank stops in training, or its thread never ends writing and
    the next save waits for it.
    """
    rng, layout = job.rng, job.layout
    layout.add("checkpoint", "checkpoint_pg", [tuple(range(layout.world_size))])
    saves = [
        (0, rng.randrange(1, max(2, job.plan.steps // 2))),
        (1, rng.randrange(1, max(2, job.plan.steps // 2))),
    ]
    job.first_epoch = 1 if job.prior else 0
    writer_hangs = rng.random() < 0.5
    victim = job.pick_rank()
    for rank in range(layout.world_size):
        for number, (epoch, step) in reversed(list(enumerate(saves))):
            hung = writer_hangs and number == 0 and rank == victim
            _save(job, rank, epoch, step, made=rng.randrange(2) if hung else 2)
            if writer_hangs and number == 1 and rank == victim:
                waits = next(
                    i for i in job.within(rank, epoch, step) if isinstance(job.programs[rank][i], Join)
                )
                where = job.programs[rank][waits].where
                job.cut(rank, waits, Stall(where, _WRITING + _THREAD))
    if writer_hangs:
        job.blame([victim], "stuck_rank")
    else:
        stops.stuck_rank(job)


def _save(job: Job, rank: int, epoch: int, step: int, made: int) -> None:
    """Insert one save at the start of a step: wait for the one before, then its two calls or fewer."""
    group = job.layout.group("checkpoint", rank)
    where, n = Where(epoch, step, "data"), len(group.ranks)
    steps: list[Step] = [
        Join(where, (("join", "/usr/lib/python3.11/threading.py", 1119), *job.source.at("loop_checkpoint")))
    ]
    for op, inputs, outputs, line in (
        ("all_gather", ((64,),), ((64 * n,),), 118),
        ("all_reduce_barrier", ((1,),), ((1,),), 137),
    )[:made]:
        inner = (("save_async", "/workspace/train/checkpoint.py", line), *_THREAD)
        name = "barrier" if op == "all_reduce_barrier" else op
        stack = ((name, f"{TORCH}/distributed/distributed_c10d.py", 3806), *inner)
        steps.append(Call(op, group, inputs, outputs, "Float", where, stack, detached=True))
    job.insert(rank, job.within(rank, epoch, step)[0], *steps)
