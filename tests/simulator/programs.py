"""The healthy program of every rank: setup, epochs of steps, metrics, validation and checkpoints."""

from __future__ import annotations

import random
from collections.abc import Callable

from .calls import Print, Program
from .layouts import Layout
from .script import Plan, Writer
from .source import Source
from .steps import STEPS


def build_programs(layout: Layout, plan: Plan, source: Source, rng: random.Random) -> list[Program]:
    """Return the healthy program of every rank."""
    step = STEPS[layout.kind]
    salt = rng.randrange(1 << 30)
    return [_program(Writer(layout, plan, source, rank), step, salt) for rank in range(layout.world_size)]


def _program(w: Writer, step: Callable[[Writer, int], None], salt: int) -> Program:
    plan, world = w.plan, w.layout.world
    if plan.setup:
        _setup(w)
    for epoch in range(plan.epochs):
        for index in range(plan.steps):
            w.phase(epoch, index, "data")
            w.compute(0.15)
            step(w, salt)
            if (index + 1) % plan.log_every == 0:
                w.phase(epoch, index, "metrics")
                w.call("all_reduce", world, ((2,),), stack=w.source.call("all_reduce", "metrics"))
                w.sync("log")
            elif plan.sync_every:
                w.phase(epoch, index, "log")
                w.sync("log")
            w.phase(epoch, index, "log")
            if plan.print_ranks == "all" or w.rank == 0:
                w.program.append(
                    Print(
                        f"[rank {w.rank}] epoch {{epoch{epoch}}} step {index + 1}/{plan.steps} loss {{loss}}",
                        w.where,
                    )
                )
        _epoch_end(w, epoch)
    w.phase(-1, -1, "final")
    w.barrier(world, "final")
    return w.program


def _setup(w: Writer) -> None:
    world = w.layout.world
    w.barrier(world, "setup")
    if w.layout.kind == "ddp":
        n = world.ranks.__len__()
        w.call(
            "all_gather",
            world,
            ((1,),),
            ((n,),),
            stack=w.source.call("all_gather", "setup", "ddp_verify"),
            dtype="Long",
        )
        w.call(
            "broadcast",
            world,
            ((sum(w.plan.sizes) % 397 + 64,),),
            stack=w.source.call("broadcast", "setup", "ddp_verify"),
            dtype="Int",
        )
    for size in w.plan.sizes[:2]:
        w.call("broadcast", world, ((size,),), stack=w.source.call("broadcast", "setup", "ddp_states"))


def _epoch_end(w: Writer, epoch: int) -> None:
    plan, world = w.plan, w.layout.world
    w.phase(epoch, -1, "epoch_end")
    if plan.print_ranks == "all":
        w.program.append(Print(f"[rank {w.rank}] epoch {{epoch{epoch}}} finished", w.where))
    w.call("all_reduce", world, ((3,),), stack=w.source.call("all_reduce", "epoch_end"))
    w.sync("epoch_end")
    w.phase(epoch, -1, "validation")
    for _ in range(plan.validation_calls):
        w.compute(0.5)
        n = w.layout.world_size
        w.call(
            "_all_gather_base",
            world,
            ((8,),),
            ((8 * n,),),
            stack=w.source.call("_all_gather_base", "validation"),
        )
    if plan.checkpoint:
        w.phase(epoch, -1, "checkpoint")
        w.compute(0.8 if w.rank == 0 else 0.01)
        w.call("broadcast", world, ((1,),), stack=w.source.call("broadcast", "checkpoint"), dtype="Long")
    if plan.epoch_barrier:
        w.phase(epoch, -1, "epoch_end")
        w.barrier(world, "epoch_barrier")
