"""From a fault and a seed to a folder: dumps/ as the job left them, and truth.json."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

from .dump_writer import DumpOptions, DumpWriter
from .engine import Engine, Outcome
from .faults import FAULTS
from .job import Base, Job, Truth, Unsuitable, draw_job, history
from .log_writer import LogWriter

_ATTEMPTS = 200
#: faults that calls alone carry, without frames and history: their dumps may be JSON or of pending calls only
_FRAMELESS = (
    "stuck_rank",
    "two_stuck_ranks",
    "crashed_signal",
    "crashed_oom",
    "gpu_stall",
    "network_stall",
    "healthy",
)
_CUT = (
    "stuck_rank",
    "two_stuck_ranks",
    "crashed_signal",
    "crashed_oom",
    "crashed_exception",
    "early_exit",
    "handler_barrier",
)


@dataclass(slots=True)
class Incident:
    """A job that has run: everything that the writers need."""

    job: Job
    bases: list[Base]
    outcome: Outcome
    rng: random.Random


def simulate(fault: str, seed: int, *, world_size: int | None = None, layout: str | None = None) -> Incident:
    """Draw jobs until one carries the fault, and run it. The same arguments give the same incident."""
    inject, layouts = FAULTS[fault]
    for attempt in range(_ATTEMPTS):
        rng = random.Random(f"{fault} {seed} {attempt}")
        size = world_size or rng.choices((8, 16, 32, 64), (45, 40, 12, 3))[0]
        kind = layout or rng.choice(layouts)
        job = draw_job(kind, size, rng, setup=True if fault == "other_model" else None)
        bases = history(job)
        try:
            inject(job)
        except (Unsuitable, IndexError):
            continue
        job.truth.kind = fault
        outcome = Engine(job.programs, rng, ahead=job.ahead, jitter=job.jitter, devices=job.devices).run()
        if _shows(fault, job, outcome):
            return Incident(job, bases, outcome, rng)
    raise Unsuitable(
        f"no job of {_ATTEMPTS} drawn ones shows {fault} (seed {seed}, ranks {world_size}, layout {layout})"
    )


def write_incident(
    folder: Path,
    fault: str,
    seed: int,
    *,
    lossy: bool = False,
    world_size: int | None = None,
    layout: str | None = None,
) -> Truth:
    """Write one incident to `folder` (made, and expected to be empty) and return its truth."""
    incident = simulate(fault, seed, world_size=world_size, layout=layout)
    job, rng, outcome = incident.job, incident.rng, incident.outcome
    dumps = folder / "dumps"
    dumps.mkdir(parents=True)
    logs = LogWriter(job, incident.bases, outcome, rng.choice(("2.7", "2.8", "2.10")))
    only_text = job.text_only or job.ended_together
    if not (lossy and rng.random() < 0.5) or only_text:
        logs.write(dumps)
    if not only_text:
        ranks = [state for state in outcome.ranks if logs.lives(state.rank)]
        options = _options(fault, incident, lossy, min((len(s.made) for s in ranks), default=1))
        hosts: dict[str, float] = {}
        offsets = [
            hosts.setdefault(job.layout.host(r), rng.gauss(0, 0.02)) for r in range(job.layout.world_size)
        ]
        writer = DumpWriter(job, incident.bases, options, offsets)
        recorder = dumps / "recorder"
        recorder.mkdir()
        for state in ranks:
            guilty = state.rank in job.truth.culprits
            if lossy and rng.random() < (0.3 if guilty else 0.12):
                continue
            early = lossy and rng.random() < 0.08
            writer.write(
                recorder, state, max(1.0, outcome.last - rng.uniform(1, 30)) if early else float("inf")
            )
        if outcome.frozen and (job.with_stacks or rng.random() < 0.3):
            logs.write_stacks(dumps)
    (folder / "truth.json").write_text(json.dumps(job.truth.to_json()))
    return job.truth


def _options(fault: str, incident: Incident, lossy: bool, fewest: int) -> DumpOptions:
    rng = incident.rng
    loose = lossy or fault in _FRAMELESS
    drawn = rng.choice((60, 100, 160, 250, 400, 2000))
    return DumpOptions(
        version=rng.choice(("2.10", "2.10", "2.9", "2.4")),
        # Counters that start later than 1 are only true of a ring that is full.
        ring=min(drawn, fewest) if incident.job.prior else drawn,
        as_json=loose and rng.random() < 0.1,
        pending_only=loose and fault != "healthy" and rng.random() < 0.12,
        prefix=rng.choice(("nccl_trace_rank_", "comm_lib_trace_rank_", "_dump_")),
    )


def _shows(fault: str, job: Job, outcome: Outcome) -> bool:
    """Return whether the run shows the fault as its truth says it."""
    if fault in ("healthy", "slow_rank"):
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
