"""One simulated job: its layout and programs, what is injected into it, and the answer that an analyzer
should give.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from .calls import Batch, Call, Program, Step
from .engine import Devices, Outcome
from .layouts import Layout, make_layout
from .programs import build_programs
from .script import Plan, make_plan
from .source import Source


class Unsuitable(Exception):
    """The drawn job cannot carry the fault; another one has to be drawn."""


@dataclass(slots=True)
class Truth:
    """What really happened. `answers`: all rank sets that are right; `accept`: causes that are right, the
    exact one first.
    """

    kind: str
    accept: list[str]
    culprits: list[int] = field(default_factory=list)
    answers: list[list[int]] | None = None
    status: str | None = None

    def to_json(self) -> dict[str, object]:
        """Return the content of truth.json."""
        data: dict[str, object] = {
            "kind": self.kind,
            "culprits": sorted(self.culprits),
            "accept_causes": self.accept,
        }
        if self.answers is not None:
            data["answers"] = [sorted(answer) for answer in self.answers]
        if self.status is not None:
            data["status"] = self.status
        return data

    def allows(self, status: str) -> bool:
        """Return whether a report's status is right: what cannot be told may be shown to be no hang as well."""
        if self.status == "inconclusive":
            return status in ("inconclusive", "no_hang")
        return self.status in (None, status)


@dataclass(slots=True)
class Job:
    """A job before it runs. `launcher` is srun (peers of a dead rank live on) or torchrun (its host's ranks
    are ended).

    `lines`: rank -> lines that its log gets when its host has stopped; `launcher_lines` likewise for the
    launcher's; `prior`: epochs that ran before the simulated ones, and which only the counters remember;
    `text_only`: no recorder ran at all; `silent`: ranks that never started; `ended_together`: all processes
    ended by themselves or from outside, without any timeout; `with_stacks`: only stacks tell the fault;
    `first_epoch`: the first that a fault is drawn for; `shows`: the fault whose marks the run must show, where
    it has another name; `earlier`: the fault of an attempt before this one; `after`: what happens between the
    freeze and the dumps; `taken`: rank -> when its dump was made; `seen_until`: the job was looked at then and
    went on; `alarm`: when the first timeout struck in a job that went on.
    """

    layout: Layout
    plan: Plan
    source: Source
    programs: list[Program]
    rng: random.Random
    truth: Truth
    prior: int = 0
    timeout: int = 600
    timing: bool = False
    ahead: int = 64
    jitter: float = 0.05
    launcher: str = "srun"
    devices: Devices = field(default_factory=Devices)
    lines: dict[int, list[str]] = field(default_factory=dict)
    launcher_lines: list[str] = field(default_factory=list)
    text_only: bool = False
    silent: set[int] = field(default_factory=set)
    ended_together: bool = False
    with_stacks: bool = False
    first_epoch: int = 0
    shows: str | None = None
    earlier: str | None = None
    after: Callable[[Job, Outcome], None] | None = None
    taken: dict[int, float] = field(default_factory=dict)
    seen_until: float | None = None
    alarm: float | None = None

    def epoch_number(self, epoch: int) -> int:
        """Return the number that the script prints for a simulated epoch."""
        return epoch + self.prior

    def pick_epoch(self) -> int:
        """Return an epoch; where older ones are forgotten, not the first, so that the recorder has something
        to show.
        """
        return self.rng.randrange(max(self.first_epoch, 1 if self.prior else 0), self.plan.epochs)

    def pick_step(self) -> tuple[int, int]:
        """Return an (epoch, step) with at least two whole steps before it."""
        epoch = self.pick_epoch()
        return epoch, self.rng.randrange(2 if epoch <= self.first_epoch else 0, self.plan.steps)

    def pick_rank(self) -> int:
        """Return a rank; rank 0 more often than others, as in real scripts."""
        return 0 if self.rng.random() < 0.2 else self.rng.randrange(self.layout.world_size)

    def within(self, rank: int, epoch: int, step: int, *phases: str) -> list[int]:
        """Return the positions of a rank's program in a step (or outside the loop with step -1) and, if
        given, in phases.
        """
        return [
            index
            for index, item in enumerate(self.programs[rank])
            if item.where.epoch == epoch
            and item.where.step == step
            and (not phases or item.where.phase in phases)
        ]

    def collectives(self, rank: int, epoch: int, step: int, *phases: str) -> list[tuple[int, Call]]:
        """Return positions and calls like `within`, of collectives in groups of at least two ranks only."""
        program = self.programs[rank]
        return [
            (index, item)
            for index in self.within(rank, epoch, step, *phases)
            if isinstance(item := program[index], Call) and not item.is_p2p and len(item.group.ranks) > 1
        ]

    def all_of(self, rank: int, phase: str) -> list[tuple[int, Call]]:
        """Return positions and calls of a phase in the whole program."""
        program = self.programs[rank]
        found = [(i, item) for i, item in enumerate(program) if isinstance(item, Call)]
        return [(index, call) for index, call in found if call.where.phase == phase]

    @property
    def sub_group_role(self) -> str:
        """Return the role whose groups hold neighbouring ranks, in layouts of several groups."""
        return {"hsdp": "shard", "megatron": "tp", "expert": "ep", "context": "cp"}[self.layout.kind]

    def blame(self, culprits: list[int], *accept: str) -> None:
        """Say who did it, and which causes are right, the exact one first."""
        self.truth.culprits, self.truth.accept = list(culprits), list(accept)

    def insert(self, rank: int, position: int, *items: Step) -> None:
        """Insert into a rank's program."""
        self.programs[rank][position:position] = items

    def remove(self, rank: int, positions: list[int]) -> None:
        """Remove positions from a rank's program."""
        gone = set(positions)
        self.programs[rank] = [item for index, item in enumerate(self.programs[rank]) if index not in gone]

    def cut(self, rank: int, position: int, *items: Step) -> None:
        """Let a rank's program end at a position with other steps."""
        self.programs[rank] = [*self.programs[rank][:position], *items]

    def record_number(self, rank: int, position: int) -> int:
        """Return how many recorder entries precede a position of a rank's program."""
        program = self.programs[rank][:position]
        return sum(
            1 if isinstance(item, Call) else len(item.calls) + 1
            for item in program
            if isinstance(item, (Call, Batch))
        )

    def seq_number(self, rank: int, position: int) -> int:
        """Return the collective seq that the call at a position will have in its group."""
        gid = self.programs[rank][position].group.gid  # type: ignore[union-attr]
        before = self.programs[rank][: position + 1]
        return sum(
            1 for item in before if isinstance(item, Call) and not item.is_p2p and item.group.gid == gid
        )


@dataclass(slots=True)
class Base:
    """Counters of what one rank did in the epochs before the simulated ones: gid -> count, and entries in
    all.
    """

    collectives: dict[int, int] = field(default_factory=dict)
    p2ps: dict[int, int] = field(default_factory=dict)
    ops: dict[int, int] = field(default_factory=dict)
    records: int = 0


def draw_job(kind: str, world_size: int, rng: random.Random, *, setup: bool | None = None) -> Job:
    """Draw a healthy job."""
    layout = make_layout(kind, world_size, rng)
    plan = make_plan(layout, rng, setup=setup)
    source = Source(rng)
    return Job(
        layout,
        plan,
        source,
        build_programs(layout, plan, source, rng),
        rng,
        Truth("healthy", []),
        prior=0 if plan.setup else rng.choice((0, rng.randrange(1, 60))),
        timeout=rng.choice((180, 600, 600, 1800)),
        timing=rng.random() < 0.25,
        ahead=rng.choice((8, 24, 64, 200)),
        jitter=rng.uniform(0.01, 0.15),
        launcher=rng.choice(("srun", "torchrun")),
    )


def history(job: Job) -> list[Base]:
    """Return each rank's counters before the simulated epochs. To be called before anything is injected."""
    return [_counted(program, job.prior) for program in job.programs]


def _counted(program: Program, times: int) -> Base:
    base = Base()
    if not times:
        return base
    for item in program:
        if item.where.epoch != 0:
            continue
        if isinstance(item, Call):
            table = base.p2ps if item.is_p2p else base.collectives
            table[item.group.gid] = table.get(item.group.gid, 0) + times
            base.ops[item.group.gid] = base.ops.get(item.group.gid, 0) + times
            base.records += times
        elif isinstance(item, Batch):
            gid = item.group.gid
            base.p2ps[gid] = base.p2ps.get(gid, 0) + times
            base.ops[gid] = base.ops.get(gid, 0) + times * len(item.calls)
            base.records += times * (len(item.calls) + 1)
    return base


def frozen_ranks(outcome: Outcome) -> list[int]:
    """Return the ranks that have a call pending."""
    return [state.rank for state in outcome.ranks if state.unfinished]
