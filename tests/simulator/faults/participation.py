"""Faults of participation: a call too many, a call or step too few, fewer batches, a rank that leaves."""

from __future__ import annotations

from tests.simulator.calls import Call, End, Group, Print, Sizes, Step, Sync, Where
from tests.simulator.job import Job, Unsuitable


def extra_call(job: Job) -> None:
    """Some rank makes a call inside the loop that the others do not make."""
    rng, layout = job.rng, job.layout
    culprits = [job.pick_rank()]
    group = layout.world if rng.random() < 0.6 else rng.choice(layout.groups_of(culprits[0]))
    hosts = layout.world_size // layout.per_host
    if group is layout.world and hosts >= 3 and rng.random() < 0.3:
        culprits = [host * layout.per_host for host in range(hosts)]
    epoch, step = job.pick_step()
    kind = rng.choice(("all_reduce", "barrier", "all_gather", "broadcast", "object", "equal"))
    waits = rng.random() < 0.7
    for rank in culprits:
        after = job.within(rank, epoch, step)[-1] + 1
        calls = _extra(job, group, kind, Where(epoch, step, "log"), job.programs[rank][after:])
        if waits or kind == "barrier":
            calls.append(Sync(Where(epoch, step, "log"), job.source.at("extra")))
        job.insert(rank, after, *calls)
    job.blame(culprits, "rank_conditional_collective")


def _extra(job: Job, group: Group, kind: str, where: Where, following: list[Step]) -> list[Step]:
    n = len(group.ranks)

    def call(op: str, inputs: Sizes, outputs: Sizes, dtype: str, *inner: str) -> Call:
        return Call(op, group, inputs, outputs, dtype, where, job.source.call(op, "extra", *inner))

    if kind == "equal":
        twins = (c for c in following if isinstance(c, Call) and c.group is group and not c.is_p2p)
        twin = next(twins, None)
        if twin is None:
            raise Unsuitable
        return [call(twin.op, twin.inputs, twin.outputs, twin.dtype)]
    if kind == "all_reduce":
        return [call("all_reduce", ((5,),), ((5,),), "Float")]
    if kind == "barrier":
        return [call("all_reduce_barrier", ((1,),), ((1,),), "Float")]
    if kind == "all_gather":
        return [call("_all_gather_base", ((16,),), ((16 * n,),), "Float")]
    if kind == "broadcast":
        return [call("broadcast", ((33,),), ((33,),), "Long")]
    return [
        call("all_gather", ((1,),), ((n,),), "Long", "gather_object"),
        Sync(where, job.source.at("extra")),
        call("all_gather", ((211,),), ((211 * n,),), "Byte", "gather_object"),
    ]


def skipped_call(job: Job) -> None:
    """One rank leaves out a call inside the loop that the others make."""
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    phases = ("metrics",) if job.rng.random() < 0.6 else ("forward", "optimizer")
    framed = [(place, call) for place, call in job.collectives(rank, epoch, step, *phases) if call.stack]
    if not framed:
        raise Unsuitable
    place, call = job.rng.choice(framed)
    # A layer's call among equal ones is no `if` of the script: leave out what stands at a line of its own.
    if sum(twin.stack == call.stack for _, twin in framed) > 1:
        raise Unsuitable
    following = job.programs[rank][place + 1 : place + 2]
    synced = bool(following) and isinstance(following[0], Sync)
    job.remove(rank, [place, place + 1] if synced else [place])
    job.blame([rank], "rank_conditional_collective")


def skipped_step(job: Job) -> None:
    """One rank skips a whole step by itself and says so in its log."""
    rank, rng = job.pick_rank(), job.rng
    epoch = job.pick_epoch()
    step = rng.randrange(max(2, job.plan.steps - 4), job.plan.steps - 1)
    places = job.within(rank, epoch, step)
    reason = rng.choice(
        (
            "loss is nan, skipping this batch",
            "non-finite gradient, skipping step",
            "empty batch after filtering, skip",
        )
    )
    where = Where(epoch, step, "forward")
    job.remove(rank, places)
    job.insert(rank, places[0], Print(f"[rank {rank}] WARNING step {step + 1}: {reason}", where))
    job.blame([rank], "rank_conditional_collective", "gradient_sync_mismatch")


def uneven_loader(job: Job) -> None:
    """A rank (or a whole replica) has fewer batches in an epoch, or one has more than all others."""
    rng = job.rng
    epoch = job.pick_epoch()
    if len(job.layout.replicas) < 2:
        raise Unsuitable
    replica = list(rng.choice(job.layout.replicas))
    more = len(job.layout.replicas) > 2 and rng.random() < 0.2
    short = [r for r in range(job.layout.world_size) if r not in replica] if more else replica
    missing = 1 if more else rng.choice((1, 1, 2, 3))
    lost = range(job.plan.steps - missing, job.plan.steps)
    for rank in short:
        job.remove(rank, [place for step in lost for place in job.within(rank, epoch, step)])
    job.blame(replica, "uneven_loader")
    if len(job.layout.replicas) == 2:  # half against half: naming nobody is right as well
        job.truth.answers = [replica, []]


def early_exit(job: Job) -> None:
    """One process ends without an error while the others still have calls to make."""
    rank = job.pick_rank()
    epoch, step = job.pick_step()
    where = Where(epoch, step, "log")
    items: list[Step] = [End(where, 0)]
    if job.rng.random() < 0.6:
        text = job.rng.choice(
            ("reached max_steps, exiting", "done, leaving", "early stopping: no improvement")
        )
        items.insert(0, Print(f"[rank {rank}] {text}", where))
    job.cut(rank, job.within(rank, epoch, step)[-1] + 1, *items)
    job.blame([rank], "early_exit")
