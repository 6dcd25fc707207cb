"""What all ranks' programs have in common, and the pen that one rank's program is written with.

Gradient reductions carry no frames by default, as on real GPU jobs: they run on autograd's device thread.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from .calls import Batch, Call, Compute, Group, Program, Sizes, Stack, Sync, Where
from .layouts import Layout
from .source import Source


@dataclass(frozen=True, slots=True)
class Plan:
    """What all ranks' programs have in common. Seconds are those of one step's compute."""

    epochs: int
    steps: int
    units: int  # gradient buckets, layers or microbatches of one step
    log_every: int
    buffers: bool
    validation_calls: int
    epoch_barrier: bool
    checkpoint: bool
    framed_backward: bool
    batched_p2p: bool
    sync_every: bool
    seconds: float
    setup: bool
    sizes: tuple[int, ...]
    print_ranks: str


def make_plan(layout: Layout, rng: random.Random, *, setup: bool | None = None) -> Plan:
    """Draw the common properties of a job."""
    heavy = layout.kind in ("megatron", "hsdp", "fsdp")
    large = layout.world_size > 16
    fewest, most = {"ddp": (14, 34), "megatron": (4, 7), "hsdp": (6, 12)}.get(layout.kind, (8, 15))
    return Plan(
        epochs=2,
        steps=fewest + 1 if large else rng.randrange(fewest, most),
        units=rng.randrange(2, 4) if heavy or large else rng.randrange(3, 7),
        log_every=rng.choice((1, 1, 2, 3)),
        buffers=layout.kind == "ddp" and rng.random() < 0.3,
        validation_calls=rng.choice((0, 1, 2)),
        epoch_barrier=rng.random() < 0.6,
        checkpoint=rng.random() < 0.4,
        framed_backward=rng.random() < 0.15,
        batched_p2p=rng.random() < 0.5,
        sync_every=rng.random() < 0.4,
        seconds=rng.uniform(0.15, 1.6),
        setup=rng.random() < 0.2 if setup is None else setup,
        sizes=tuple(
            rng.choice((262144, 524288, 1048576, 2359296, 6553600)) + 64 * rng.randrange(50) for _ in range(8)
        ),
        print_ranks=rng.choice(("all", "first", "first")),
    )


class Writer:
    """Collects one rank's program. Names of ops are the recorder's."""

    def __init__(self, layout: Layout, plan: Plan, source: Source, rank: int) -> None:
        self.layout, self.plan, self.source, self.rank = layout, plan, source, rank
        self.program: Program = []
        self.where = Where(-1, -1, "init")

    def call(
        self,
        op: str,
        group: Group,
        inputs: Sizes,
        outputs: Sizes | None = None,
        *,
        stack: Stack = (),
        dtype: str = "Float",
        asynchronous: bool = False,
        root: int = 0,
    ) -> Call:
        """Append a collective; `outputs` defaults to the inputs."""
        call = Call(
            op,
            group,
            inputs,
            inputs if outputs is None else outputs,
            dtype,
            self.where,
            stack,
            asynchronous,
            root=root,
        )
        self.program.append(call)
        return call

    def barrier(self, group: Group, place: str) -> None:
        """Append a barrier, whose host waits for it."""
        self.call(
            "all_reduce_barrier",
            group,
            ((1,),),
            stack=self.source.call("all_reduce_barrier", place),
            dtype="Float",
        )
        self.program.append(Sync(self.where, self.source.call("barrier", place)))

    def p2p(
        self,
        direction: str,
        group: Group,
        peer: int,
        size: int,
        place: str,
        inner: str,
        *,
        append: bool = True,
    ) -> Call:
        """Make a send or recv of `size` BFloat16 elements with the group-local rank `peer`."""
        own = group.local(self.rank)
        src, dst = (own, peer) if direction == "send" else (peer, own)
        shape = ((size // 1024, 1, 1024),)
        call = Call(
            direction,
            group,
            shape,
            shape,
            "BFloat16",
            self.where,
            self.source.call(direction, place, inner),
            src=src,
            dst=dst,
        )
        if append:
            self.program.append(call)
        return call

    def batch(self, calls: list[Call], place: str, inner: str) -> None:
        """Append calls as one batch_isend_irecv, or one after the other when the plan says so."""
        if self.plan.batched_p2p or len(calls) > 1:
            self.program.append(Batch(calls, self.where, self.source.batch(place, inner)))
        else:
            self.program.extend(calls)

    def phase(self, epoch: int, step: int, name: str) -> None:
        """Say which part of the script follows."""
        self.where = Where(epoch, step, name)

    def sync(self, place: str) -> None:
        """Append a wait of the host, as `.item()` makes it."""
        self.program.append(Sync(self.where, self.source.at(place, helper=False)))

    def compute(self, share: float) -> None:
        """Append host work of a share of a step."""
        self.program.append(Compute(self.plan.seconds * share, self.where))

    def backward_stack(self, op: str) -> Stack:
        """Return the stack of a call made in backward: none, unless autograd runs on the main thread."""
        return self.source.call(op, "backward", "engine") if self.plan.framed_backward else ()
