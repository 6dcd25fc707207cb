"""One training step in each layout: forward, backward and optimizer, with the calls that they make."""

from __future__ import annotations

import random
from collections.abc import Callable

from .calls import Group, Wait
from .script import Writer


def _reduce_buckets(w: Writer, group: Group, count: int) -> None:
    for size in w.plan.sizes[:count]:
        w.compute(0.5 / count)
        w.call("all_reduce", group, ((size,),), stack=w.backward_stack("all_reduce"), asynchronous=True)
    w.program.append(Wait(w.where))


def _ddp(w: Writer, salt: int) -> None:
    epoch, step = w.where.epoch, w.where.step
    w.phase(epoch, step, "forward")
    if w.plan.buffers:
        w.call(
            "broadcast",
            w.layout.world,
            ((2049,),),
            stack=w.source.call("broadcast", "forward", "ddp_buffers", "module"),
        )
    w.compute(0.3)
    w.phase(epoch, step, "backward")
    _reduce_buckets(w, w.layout.world, w.plan.units)
    w.phase(epoch, step, "optimizer")
    w.compute(0.05)


def _fsdp(w: Writer, salt: int) -> None:
    epoch, step, plan = w.where.epoch, w.where.step, w.plan
    shard = w.layout.group("shard", w.rank)
    n = len(shard.ranks)
    replicate = w.layout.roles.get("replicate", {}).get(w.rank)
    w.phase(epoch, step, "forward")
    for size in plan.sizes[: plan.units]:
        part = size // n
        w.call(
            "_all_gather_base",
            shard,
            ((part,),),
            ((part * n,),),
            stack=w.source.call("_all_gather_base", "forward", "fsdp", "module"),
            dtype="BFloat16",
        )
        w.compute(0.25 / plan.units)
    w.phase(epoch, step, "backward")
    for size in reversed(plan.sizes[: plan.units]):
        part = size // n
        w.call(
            "_all_gather_base",
            shard,
            ((part,),),
            ((part * n,),),
            stack=w.backward_stack("_all_gather_base"),
            dtype="BFloat16",
        )
        w.compute(0.4 / plan.units)
        w.call(
            "_reduce_scatter_base",
            shard,
            ((part * n,),),
            ((part,),),
            stack=w.backward_stack("_reduce_scatter_base"),
            asynchronous=replicate is None,
        )
        if replicate is not None:
            w.call(
                "all_reduce", replicate, ((part,),), stack=w.backward_stack("all_reduce"), asynchronous=True
            )
    w.program.append(Wait(w.where))
    w.phase(epoch, step, "optimizer")
    w.call("all_reduce", shard, ((),), stack=w.source.call("all_reduce", "clip", "grad_norm"))
    w.compute(0.05)


def _megatron(w: Writer, salt: int) -> None:
    """One step of the 1F1B schedule with tensor-parallel calls inside each microbatch."""
    epoch, step, plan = w.where.epoch, w.where.step, w.plan
    pipe, stages = w.layout.group("pp", w.rank), w.layout.shape["pp"]
    stage, micro = pipe.local(w.rank), max(plan.units, w.layout.shape["pp"])
    size = 2048 * 1024

    def forward() -> None:
        w.phase(epoch, step, "forward")
        tensor = w.layout.group("tp", w.rank)
        if stage in (0, stages - 1):
            w.call(
                "broadcast",
                tensor,
                ((1, 8192),),
                stack=w.source.call("broadcast", "forward", "batch_data"),
                dtype="Long",
            )
        for _ in range(2):
            w.compute(0.1 / micro)
            w.call(
                "all_reduce",
                tensor,
                ((2048, 1, 1024),),
                stack=w.source.call("all_reduce", "forward", "tensor", "block"),
                dtype="BFloat16",
            )

    def backward() -> None:
        w.phase(epoch, step, "backward")
        for _ in range(2):
            w.compute(0.2 / micro)
            w.call(
                "all_reduce",
                w.layout.group("tp", w.rank),
                ((2048, 1, 1024),),
                stack=w.backward_stack("all_reduce"),
                dtype="BFloat16",
            )

    def exchange(*parts: tuple[str, int, str]) -> None:
        """Talk to the neighbours that exist: (send or recv, stage, direction of the data)."""
        calls = [
            w.p2p(d, pipe, peer, size, "forward", f"pipeline_{way}", append=False)
            for d, peer, way in parts
            if 0 <= peer < stages
        ]
        if calls:
            w.batch(calls, "forward", f"pipeline_{parts[0][2]}")

    warmup = min(stages - 1 - stage, micro)
    for _ in range(warmup):
        w.phase(epoch, step, "forward")
        exchange(("recv", stage - 1, "forward"))
        forward()
        exchange(("send", stage + 1, "forward"))
    if micro > warmup:
        w.phase(epoch, step, "forward")
        exchange(("recv", stage - 1, "forward"))
    for index in range(micro - warmup):
        forward()
        exchange(("send", stage + 1, "forward"), ("recv", stage + 1, "backward"))
        backward()
        if index < micro - warmup - 1:
            exchange(("send", stage - 1, "backward"), ("recv", stage - 1, "forward"))
        else:
            exchange(("send", stage - 1, "backward"))
    for _ in range(warmup):
        w.phase(epoch, step, "backward")
        exchange(("recv", stage + 1, "backward"))
        backward()
        exchange(("send", stage - 1, "backward"))
    w.phase(epoch, step, "optimizer")
    data = w.layout.group("dp", w.rank)
    for bucket in plan.sizes[:2]:
        w.call("all_reduce", data, ((bucket,),), stack=w.source.call("all_reduce", "optimizer", "grad_sync"))
    if stage in (0, stages - 1):
        w.call(
            "all_reduce",
            w.layout.group("embedding", w.rank),
            ((32000, 1024),),
            stack=w.source.call("all_reduce", "optimizer", "embedding_grads"),
        )
    w.call(
        "all_reduce",
        w.layout.group("mp", w.rank),
        ((1,),),
        stack=w.source.call("all_reduce", "clip", "grad_norm"),
    )
    w.sync("clip")


def _expert(w: Writer, salt: int) -> None:
    """Run mixture-of-experts layers: unequal all_to_all splits are legal, so sizes differ between ranks."""
    epoch, step, plan = w.where.epoch, w.where.step, w.plan
    experts = w.layout.group("ep", w.rank)
    n = len(experts.ranks)
    layers = max(1, plan.units // 2)
    w.phase(epoch, step, "forward")
    place, members = experts.ranks.index(w.rank), n - n % 2
    # What one of two members takes more the other takes less: all together take as much as they give.
    more = [
        random.Random(f"{salt} {epoch} {step} {i} {place // 2}").randrange(-300, 300) for i in range(layers)
    ]
    got = [2048 + (0 if place >= members else more[i] if place % 2 else -more[i]) for i in range(layers)]
    for tokens in got:
        w.call(
            "_all_gather_base",
            experts,
            ((n,),),
            ((n * n,),),
            stack=w.source.call("_all_gather_base", "forward", "moe_counts", "module"),
            dtype="Long",
        )
        w.call(
            "all_to_all",
            experts,
            ((2048, 1024),),
            ((tokens, 1024),),
            stack=w.source.call("all_to_all", "forward", "moe_dispatch", "module"),
            dtype="BFloat16",
        )
        w.compute(0.2 / layers)
        w.call(
            "all_to_all",
            experts,
            ((tokens, 1024),),
            ((2048, 1024),),
            stack=w.source.call("all_to_all", "forward", "moe_combine", "module"),
            dtype="BFloat16",
        )
    w.phase(epoch, step, "backward")
    for tokens in reversed(got):
        w.call(
            "all_to_all",
            experts,
            ((2048, 1024),),
            ((tokens, 1024),),
            stack=w.backward_stack("all_to_all"),
            dtype="BFloat16",
        )
        w.compute(0.3 / layers)
        w.call(
            "all_to_all",
            experts,
            ((tokens, 1024),),
            ((2048, 1024),),
            stack=w.backward_stack("all_to_all"),
            dtype="BFloat16",
        )
        w.call(
            "all_reduce",
            w.layout.group("edp", w.rank),
            ((plan.sizes[5],),),
            stack=w.backward_stack("all_reduce"),
            asynchronous=True,
        )
    _reduce_buckets(w, w.layout.world, 2)
    w.phase(epoch, step, "optimizer")
    w.compute(0.05)


def _context(w: Writer, salt: int) -> None:
    """Run attention as a ring over the context-parallel group; gradients over the world."""
    epoch, step, plan = w.where.epoch, w.where.step, w.plan
    ring = w.layout.group("cp", w.rank)
    n, own = len(ring.ranks), ring.local(w.rank)
    w.phase(epoch, step, "forward")
    for _ in range(max(1, plan.units // 2)):
        for _ in range(min(n - 1, 2)):
            calls = [
                w.p2p("send", ring, (own + 1) % n, 512 * 1024, "forward", "ring", append=False),
                w.p2p("recv", ring, (own - 1) % n, 512 * 1024, "forward", "ring", append=False),
            ]
            w.batch(calls, "forward", "ring")
            w.compute(0.1)
    w.phase(epoch, step, "backward")
    for size in plan.sizes[:2]:
        w.call(
            "_reduce_scatter_base",
            ring,
            ((size // n * n,),),
            ((size // n,),),
            stack=w.backward_stack("_reduce_scatter_base"),
            dtype="BFloat16",
        )
        w.compute(0.1)
    w.call(
        "all_reduce",
        w.layout.group("dp", w.rank),
        ((plan.sizes[3],),),
        stack=w.backward_stack("all_reduce"),
        asynchronous=True,
    )
    _reduce_buckets(w, w.layout.world, 2)
    w.phase(epoch, step, "optimizer")
    w.compute(0.05)


STEPS: dict[str, Callable[[Writer, int], None]] = {
    "ddp": _ddp,
    "fsdp": _fsdp,
    "hsdp": _fsdp,
    "megatron": _megatron,
    "expert": _expert,
    "context": _context,
}
