"""Faults in which a rank stops by itself: crashes, handlers, stuck and slow ranks."""

from __future__ import annotations

import dataclasses

from tests.simulator.calls import Call, Compute, End, Print, Stack, Stall, Step, Sync, Where
from tests.simulator.job import Job, Unsuitable
from tests.simulator.source import TORCH

_ERRORS = (
    "ValueError: could not broadcast input array from shape (3,224) into shape (3,256)",
    "KeyError: 'input_ids'",
    "RuntimeError: DataLoader worker (pid 40213) is killed by signal: Killed. ",
    "OSError: [Errno 28] No space left on device",
    "IndexError: list index out of range",
)
_DOING: tuple[Stack, ...] = (
    (("wait", "/usr/lib/python3.11/threading.py", 331), ("get", "/usr/lib/python3.11/queue.py", 180)),
    (
        ("_try_get_data", f"{TORCH}/utils/data/dataloader.py", 1293),
        ("__next__", f"{TORCH}/utils/data/dataloader.py", 740),
    ),
    (("read", "/usr/lib/python3.11/gzip.py", 301), ("load_shard", "/workspace/train/shards.py", 57)),
    (("acquire", "/workspace/train/filelock.py", 91), ("fetch", "/workspace/train/cache.py", 22)),
)
#: what completes on a member only if every member took part
PROVING = ("all_reduce", "_all_gather_base", "_reduce_scatter_base", "all_to_all")
_CODE = {"<module>": "main()", "main": "train(model, loader)", "fit": "self.run_epoch()"}


def crashed_exception(job: Job) -> None:
    """A rank raises; its traceback is in its log."""
    _crash(job, 1, job.rng.choice(_ERRORS))


def crashed_oom(job: Job) -> None:
    """A rank runs out of GPU memory."""
    free = "GPU 0 has a total capacity of 79.11 GiB of which 1.02 GiB is free."
    _crash(job, 1, f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.38 GiB. {free}")


def crashed_signal(job: Job) -> None:
    """A rank is killed: its log just ends, only the launcher tells."""
    code = job.rng.choice((-9, -9, -11, -7))
    rank = _crash(job, code, "")
    if code == -9 and job.rng.random() < 0.4:
        job.launcher_lines.append(
            f"kernel: Out of memory: Killed process {{pid{rank}}} (python) total-vm:214748364kB"
        )


def _crash(job: Job, code: int, error: str) -> int:
    rank = job.pick_rank()
    position, stack = _place(job, rank)
    where = job.programs[rank][position].where
    job.cut(rank, position, End(where, code, traceback_lines(stack, error) if error else []))
    job.blame([rank], "crashed_rank")
    return rank


def handler_barrier(job: Job) -> None:
    """A rank raises, and its exception handler calls a barrier."""
    rank = job.pick_rank()
    position, stack = _place(job, rank)
    where, source = job.programs[rank][position].where, job.source
    barrier = source.call("all_reduce_barrier", "except")
    items: list[Step] = [
        Call("all_reduce_barrier", job.layout.world, ((1,),), ((1,),), "Float", where, barrier),
        Sync(where, source.call("barrier", "except")),
        Stall(where, source.at("except")),
    ]
    if job.rng.random() < 0.7:
        logged = traceback_lines(stack, "ValueError: sample 8812 has no target")
        items[:0] = [Print(line, where) for line in logged]
        job.blame([rank], "crashed_rank", "collective_mismatch")
    else:
        job.blame([rank], "collective_mismatch", "crashed_rank", "rank_conditional_collective")
    job.cut(rank, position, *items)


def stuck_rank(job: Job) -> None:
    """A rank is alive but never makes its next call."""
    rank = job.pick_rank()
    position, _ = _place(job, rank)
    _stall(job, rank, position)
    job.blame([rank], "stuck_rank")


def two_stuck_ranks(job: Job) -> None:
    """Two ranks of different replicas stop at the same place, each by itself."""
    if len(job.layout.replicas) < 3 or len(job.layout.replicas[0]) < 2:
        raise Unsuitable
    first, second = job.rng.sample(job.layout.replicas, 2)
    ranks = [job.rng.choice(first), job.rng.choice(second)]
    epoch, step = job.pick_step()
    for rank in ranks:
        _stall(job, rank, job.within(rank, epoch, step)[0])
    job.blame(ranks, "stuck_rank")


def several_roots(job: Job) -> None:
    """Ranks of two or three replicas stop in one step, each by itself and in its own way."""
    rng, replicas = job.rng, job.layout.replicas
    if len(replicas) < 3 or len(replicas[0]) < 2:
        raise Unsuitable
    job.launcher = "srun"  # torchrun would end the other roots on the host of a dead one
    number = rng.randrange(2, min(3, len(replicas) - 1) + 1)
    ways = rng.sample(("stuck_rank", "crashed_rank", "gpu_stall"), number)
    ranks = [rng.choice(replica) for replica in rng.sample(replicas, number)]
    epoch, step = job.pick_step()
    for rank, way in zip(ranks, ways, strict=True):
        first = job.within(rank, epoch, step)[0]
        if way == "stuck_rank":
            _stall(job, rank, first)
        elif way == "crashed_rank":
            error = rng.choice(_ERRORS)
            job.cut(
                rank, first, End(Where(epoch, step, "data"), 1, traceback_lines(job.source.at("data"), error))
            )
        else:
            calls = [place for place, call in job.collectives(rank, epoch, step) if call.op in PROVING]
            if not calls:
                raise Unsuitable
            job.devices.dead[rank] = job.record_number(rank, calls[0])
    job.blame(ranks, *ways)


def zero_splits(job: Job) -> None:
    """A rank stops before an all_to_all that completes on those who have nothing to exchange with it."""
    rank, rng = job.pick_rank(), job.rng
    epoch, step = job.pick_step()
    first, _ = next(
        pair for pair in job.collectives(rank, epoch, step, "forward") if pair[1].op == "all_to_all"
    )
    members = job.layout.group("ep", rank).ranks
    others = [member for member in members if member != rank]
    for member in rng.sample(others, rng.randrange(1, max(2, len(others)))):
        exchange = [
            p for p, call in job.collectives(member, epoch, step, "forward") if call.op == "all_to_all"
        ]
        for place in exchange[:2]:
            call = job.programs[member][place]
            assert isinstance(call, Call)
            job.programs[member][place] = dataclasses.replace(call, peers=tuple(others))
    _stall(job, rank, first)
    job.blame([rank], "stuck_rank")


def stuck_pending(job: Job) -> None:
    """A rank is stuck while an asynchronous call of its is pending: dumps alone show a false cycle, stacks
    tell.

    This rank launches a sub-group's reduction before the world's one, which is harmless because it does not
    wait for it.
    """
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    role = job.sub_group_role
    for member in range(job.layout.world_size):
        for place, call in reversed(job.all_of(member, "metrics")):
            group = job.layout.group(role, member)
            sizes = ((4,),)
            stack = job.source.call("all_reduce", "log")
            early = Call("all_reduce", group, sizes, sizes, "Float", call.where, stack, asynchronous=True)
            items: list[Step] = [early, call] if member == rank else [call, early]
            if member == rank and (call.where.epoch, call.where.step) == (epoch, step):
                job.cut(rank, place, early, Stall(call.where, job.rng.choice(_DOING) + job.source.at("log")))
                continue
            job.programs[member][place : place + 1] = items
    job.with_stacks = True
    job.blame([rank], "stuck_rank")


def slow_rank(job: Job) -> None:
    """A rank comes to a call after the timeout; the error handling is off, and the call completes then."""
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    pause = Compute(job.timeout * job.rng.uniform(1.05, 1.6), Where(epoch, step, "data"))
    job.insert(rank, job.within(rank, epoch, step)[0], pause)
    job.blame([rank], "slow_rank")
    job.truth.status = "no_hang"


def _stall(job: Job, rank: int, position: int) -> None:
    where = job.programs[rank][position].where
    place = "data" if where.phase == "data" else "log" if where.in_loop else "checkpoint"
    job.cut(rank, position, Stall(where, job.rng.choice(_DOING) + job.source.at(place)))


def _place(job: Job, rank: int) -> tuple[int, Stack]:
    """Return where a rank stops and its stack there: mostly at the loader, in a step or between steps."""
    rng = job.rng
    epoch, step = job.pick_step()
    if rng.random() < 0.15:
        checkpoint = job.within(rank, epoch, -1, "checkpoint")
        positions = checkpoint or job.within(rank, epoch, -1, "epoch_end")
        return positions[0], job.source.at("checkpoint" if checkpoint else "epoch_end")
    phase = rng.choice(("data", "data", "forward", "optimizer", "log", "backward"))
    positions = job.within(rank, epoch, step, phase) or job.within(rank, epoch, step)
    return positions[0] if rng.random() < 0.5 else rng.choice(positions), job.source.at(phase)


def traceback_lines(stack: Stack, error: str) -> list[str]:
    """Return a Python traceback's lines for a stack given innermost first."""
    lines = ["Traceback (most recent call last):"]
    for name, file, line in reversed(stack):
        lines += [f'  File "{file}", line {line}, in {name}', "    " + _CODE.get(name, "self.check(batch)")]
    return [*lines, error]
