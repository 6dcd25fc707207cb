"""From a fault and a seed to a job that has run."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .engine import Engine, Outcome
from .faults import FAULTS
from .faults.catalog import Injection
from .job import Base, Job, Unsuitable, draw_job, history

_ATTEMPTS = 200
_CUT = (
    "stuck_rank",
    "two_stuck_ranks",
    "crashed_signal",
    "crashed_oom",
    "crashed_exception",
    "early_exit",
    "handler_barrier",
    "zero_splits",
    "async_checkpoint",
)


@dataclass(slots=True)
class Incident:
    """A job that has run: everything that the writers need."""

    job: Job
    bases: list[Base]
    outcome: Outcome
    rng: random.Random
    seed: int
    earlier: Incident | None = None


def simulate(fault: str, seed: int, *, world_size: int | None = None, layout: str | None = None) -> Incident:
    """Draw jobs until one carries the fault, and run it. The same arguments give the same incident."""
    inject, layouts = FAULTS[fault]
    for attempt in range(_ATTEMPTS):
        drawn = f"{fault} {seed} {attempt}"
        incident = _run(fault, drawn, seed, inject, layouts, world_size, layout)
        if incident is None:
            continue
        before = incident.job.earlier
        if before is not None:
            # The same job again, drawn alike, with another fault: the attempt before.
            incident.earlier = _run(before, drawn, seed, FAULTS[before][0], layouts, world_size, layout)
            if incident.earlier is None:
                continue
        return incident
    raise Unsuitable(
        f"no job of {_ATTEMPTS} drawn ones shows {fault} (seed {seed}, ranks {world_size}, layout {layout})"
    )


def _run(
    fault: str,
    drawn: str,
    seed: int,
    inject: Injection,
    layouts: tuple[str, ...],
    world_size: int | None,
    layout: str | None,
) -> Incident | None:
    """Return a job that follows from `drawn`, with a fault in it; None where it does not carry or show it."""
    rng = random.Random(drawn)
    size = world_size or rng.choices((8, 16, 32, 64), (45, 40, 12, 3))[0]
    kind = layout or rng.choice(layouts)
    job = draw_job(kind, size, rng, setup=True if fault == "other_model" else None)
    bases = history(job)
    if not drawn.startswith(fault):
        rng = job.rng = random.Random(f"{drawn} {fault}")
    try:
        inject(job)
    except (Unsuitable, IndexError):
        return None
    job.truth.kind = fault
    outcome = Engine(job.programs, rng, ahead=job.ahead, jitter=job.jitter, devices=job.devices).run()
    if not _shows(job.shows or fault, job, outcome):
        return None
    if job.after is not None:
        job.after(job, outcome)
    return Incident(job, bases, outcome, rng, seed)


def _shows(fault: str, job: Job, outcome: Outcome) -> bool:
    """Return whether the run shows the fault as its truth says it."""
    if fault in ("healthy", "slow_rank", "still_moving", "slow_network_card"):
        return not outcome.frozen
    if job.ended_together:
        return True
    if not outcome.frozen:
        return False
    states = [outcome.ranks[rank] for rank in job.truth.culprits]
    if fault in _CUT:
        return all(s.stalled or s.ended or fault == "handler_barrier" for s in states)
    if fault == "gpu_stall":
        return all(_outlived(outcome, state.rank, job.devices.dead[state.rank]) for state in states)
    if fault == "several_roots":
        return all(
            s.stalled
            or s.ended
            or (s.rank in job.devices.dead and _outlived(outcome, s.rank, job.devices.dead[s.rank]))
            for s in states
        )
    if fault == "network_stall":
        (key,) = job.devices.broken
        members = job.layout.groups[key[0]].ranks
        return all(
            any(
                (m.gid, m.seq) == key and m.started is not None and not m.is_p2p
                for m in outcome.ranks[r].made
            )
            for r in members
        )
    return not any(state.done and not state.unfinished for state in states)


def _outlived(outcome: Outcome, rank: int, number: int) -> bool:
    """Return whether a peer completed the call that never completes on `rank`."""
    made = outcome.ranks[rank].made
    if number >= len(made):
        return False
    last = made[number]
    return any(
        m.completed is not None and (m.gid, m.seq, m.is_p2p) == (last.gid, last.seq, False)
        for state in outcome.ranks
        if state.rank != rank
        for m in state.made
    )
