"""Faults in which all ranks call, but not the same: sizes, types, ops, buckets, models, orders, halves of
pairs.
"""

from __future__ import annotations

import dataclasses

from tests.simulator.calls import Batch, Call, End, Sizes, Step, Sync, Where
from tests.simulator.job import Job, Unsuitable

from .stops import traceback_lines

_SIZED = ("all_reduce", "_all_gather_base", "_reduce_scatter_base")


def shape_mismatch(job: Job) -> None:
    """One rank makes the same call with another size."""
    rank, place, call = _one_call(job)
    by, scale = job.rng.choice((1, 3, 64)), len(call.group.ranks)

    def grow(sizes: Sizes, extra: int) -> Sizes:
        return tuple((*shape[:-1], shape[-1] + extra) if shape else (extra,) for shape in sizes)

    job.programs[rank][place] = dataclasses.replace(
        call,
        inputs=grow(call.inputs, by * scale if call.op == "_reduce_scatter_base" else by),
        outputs=grow(call.outputs, by * scale if call.op == "_all_gather_base" else by),
    )
    job.blame([rank], "shape_mismatch")


def dtype_mismatch(job: Job) -> None:
    """One rank makes the same call with another element type."""
    rank, place, call = _one_call(job)
    other = {"Float": "Half", "BFloat16": "Float", "Long": "Int"}[call.dtype]
    job.programs[rank][place] = dataclasses.replace(call, dtype=other)
    job.blame([rank], "dtype_mismatch")


def other_collective(job: Job) -> None:
    """One rank makes another kind of call in the place of the common one."""
    rank, place, call = _one_call(job, "metrics")
    gathered = ((call.inputs[0][0] * len(call.group.ranks),),)
    choices = (("reduce", call.inputs), ("broadcast", call.inputs), ("_all_gather_base", gathered))
    op, outputs = job.rng.choice(choices)
    stack = job.source.call(op, "metrics")
    job.programs[rank][place] = dataclasses.replace(call, op=op, outputs=outputs, stack=stack)
    job.blame([rank], "collective_mismatch", "rank_conditional_collective")


def _one_call(job: Job, *phases: str) -> tuple[int, int, Call]:
    """Return a framed collective of one rank, inside the loop or after it."""
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    calls = job.collectives(rank, epoch, step, *(phases or ("metrics", "forward", "optimizer")))
    if not phases and job.rng.random() < 0.2:
        calls = job.collectives(rank, epoch, -1, "validation", "epoch_end") or calls
    calls = [(place, call) for place, call in calls if call.op in _SIZED and call.stack]
    if not calls:
        raise Unsuitable
    return rank, *job.rng.choice(calls)


def missing_bucket(job: Job) -> None:
    """In one step a rank's backward reduces fewer gradient buckets than the others'."""
    rank, buckets = _buckets(job)
    places = [place for place, _ in buckets]
    keep = job.rng.randrange(0, len(places)) if job.rng.random() < 0.7 else 0
    where = buckets[0][1].where
    if keep == 0 and not job.collectives(rank, where.epoch, where.step, "metrics"):
        raise Unsuitable  # nothing would tell this step from one that was skipped or never loaded
    job.remove(rank, places[keep : keep + 1] if keep and job.rng.random() < 0.5 else places[keep:])
    job.blame([rank], "gradient_sync_mismatch")


def other_buckets(job: Job) -> None:
    """In one step a rank's gradient buckets have other sizes than the others'."""
    rank, buckets = _buckets(job)
    moved = job.rng.randrange(1, 9) * 1024
    for sign, (place, call) in zip((1, -1), buckets, strict=False):
        shape = ((call.inputs[0][0] + sign * moved,),)
        job.programs[rank][place] = dataclasses.replace(call, inputs=shape, outputs=shape)
    job.blame([rank], "gradient_sync_mismatch", "shape_mismatch")


def _buckets(job: Job) -> tuple[int, list[tuple[int, Call]]]:
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    calls = job.collectives(rank, epoch, step, "backward")
    buckets = [(place, c) for place, c in calls if c.op == "all_reduce" and c.group is job.layout.world]
    if len(buckets) < 2:
        raise Unsuitable
    return rank, buckets


def other_model(job: Job) -> None:
    """A rank built another model: the constructor's broadcasts differ, or DDP says so before them."""
    rank = job.pick_rank()
    if job.rng.random() < 0.5:
        count = job.rng.randrange(100, 400)
        _params_differ(job, rank, count, count + job.rng.choice((-2, 1, 2, 6)))
    else:
        more = job.rng.choice((2, 8, 512))
        for place, call in job.collectives(rank, -1, -1, "init"):
            if call.op == "broadcast":
                shape = ((call.inputs[0][0] + more,),)
                job.programs[rank][place] = dataclasses.replace(call, inputs=shape, outputs=shape)
    job.blame([rank], "model_mismatch")


def _params_differ(job: Job, odd: int, common: int, other: int) -> None:
    """Let every rank end with DDP's view: its own count, and that of the lowest rank with another one."""
    job.text_only = job.ended_together = True
    for rank in range(job.layout.world_size):
        seen = odd if rank != odd else 0 if odd else 1
        mine, theirs = (other, common) if rank == odd else (common, other)
        text = f"Rank {rank} has {mine} params, while rank {seen} has inconsistent {theirs} params."
        error = f"RuntimeError: [{rank}]: DDP expects same model across all ranks, but {text}"
        lines = traceback_lines(job.source.at("setup"), error)
        job.cut(rank, 0, End(Where(-1, -1, "init"), 1, lines))


def other_order(job: Job) -> None:
    """Every rank averages over a sub-group and over the world; one does it once in the other order."""
    _swap_once(job, job.sub_group_role)


def other_order_in_pairs(job: Job) -> None:
    """As `other_order`, between data-parallel groups of two and a world of 16 or 32 ranks: only sibling groups have a majority."""
    role = next((role for role in ("dp", "edp", "replicate") if role in job.layout.roles), "")
    pairs = role and all(len(group.ranks) == 2 for group in job.layout.roles[role].values())
    if not pairs or job.layout.world_size not in (16, 24, 32):
        raise Unsuitable
    _swap_once(job, role)


def _swap_once(job: Job, role: str) -> None:
    victim = job.pick_rank()
    waits = job.rng.random() < 0.4
    at = job.pick_step()
    if (at[1] + 1) % job.plan.log_every:
        raise Unsuitable
    for rank in range(job.layout.world_size):
        for place, call in reversed(job.all_of(rank, "metrics")):
            group, stack = job.layout.group(role, rank), job.source.call("all_reduce", "log")
            inner = Call("all_reduce", group, ((4,),), ((4,),), "Float", call.where, stack)
            pair: list[Step] = [call, inner]
            if rank == victim and (call.where.epoch, call.where.step) == at:
                pair.reverse()
            if waits:
                pair.insert(1, Sync(call.where, job.source.at("metrics")))
            job.programs[rank][place : place + 1] = pair
    job.blame([victim], "collective_order_mismatch")


def skipped_send(job: Job) -> None:
    """A rank leaves out one send in the middle of a step and goes on; other pipelines run side by side."""
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    program = job.programs[rank]
    sends = [
        (place, item)
        for place in job.within(rank, epoch, step)
        if isinstance(item := program[place], Call) and item.op == "send"
    ][1:-1]
    siblings = len({tuple(group.ranks) for group in job.layout.roles.get("pp", {}).values()})
    if not sends or siblings < 3:
        raise Unsuitable
    del program[job.rng.choice(sends)[0]]
    job.blame([rank], "p2p_mismatch")


def lost_half(job: Job) -> None:
    """A rank leaves out a send or recv, gives it another size, or another peer."""
    rng, rank = job.rng, job.pick_rank()
    epoch, step = job.pick_step()
    program = job.programs[rank]
    places = [
        place
        for place in job.within(rank, epoch, step)
        if isinstance(item := program[place], Batch) or (isinstance(item, Call) and item.is_p2p)
    ]
    if not places:
        raise Unsuitable
    place = rng.choice(places)
    item = program[place]
    assert isinstance(item, (Batch, Call))
    calls = list(item.calls) if isinstance(item, Batch) else [item]
    index = rng.randrange(len(calls))
    call = calls[index]
    others = [peer for peer in range(len(call.group.ranks)) if peer not in (call.src, call.dst)]
    if others and rng.random() < 0.3:
        peer = rng.choice(others)
        sends = call.op == "send"
        calls[index] = dataclasses.replace(call, dst=peer) if sends else dataclasses.replace(call, src=peer)
    elif rng.random() < 0.2:
        shape = tuple((*s[:-1], s[-1] // 2) for s in call.inputs)
        calls[index] = dataclasses.replace(call, inputs=shape, outputs=shape)
    else:
        del calls[index]
    if isinstance(item, Batch):
        program[place : place + 1] = [dataclasses.replace(item, calls=calls)] if calls else []
    else:
        program[place : place + 1] = calls
    job.blame([rank], "p2p_mismatch")
