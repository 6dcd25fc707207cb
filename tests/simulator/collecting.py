"""The ways in which an incident's files are collected: whole, in part, late, from some hosts only.

A way turns what a job could leave (`Remains`) into what was kept of it. Every way applies to every fault.
"""

from __future__ import annotations

import dataclasses
import json
import random
from collections.abc import Callable
from pathlib import Path

from .incident import simulate
from .job import Truth
from .remains import Kept, Remains

Way = Callable[[Remains, random.Random], Kept]
_NOBODY: frozenset[int] = frozenset()


def _full(left: Remains, rng: random.Random) -> Kept:
    return left.full


def _logs_only(left: Remains, rng: random.Random) -> Kept:
    return dataclasses.replace(left.full, dumps=_NOBODY, stacks=_NOBODY, stale=_NOBODY)


def _two_victims(left: Remains, rng: random.Random) -> Kept:
    victims = sorted(left.full.dumps - set(left.job.truth.culprits))
    chosen = frozenset(rng.sample(victims, min(2, len(victims))))
    return dataclasses.replace(left.full, dumps=chosen, stacks=_NOBODY, stale=_NOBODY)


def _dumps_only(left: Remains, rng: random.Random) -> Kept:
    return dataclasses.replace(left.full, logs=_NOBODY, stacks=_NOBODY, launchers=frozenset())


def _guilty(left: Remains, rng: random.Random) -> frozenset[int]:
    """Return whose files are lost: the culprits', or where nobody is one, any rank's."""
    return frozenset(left.job.truth.culprits) or frozenset({rng.randrange(left.job.layout.world_size)})


def _culprit_dump_gone(left: Remains, rng: random.Random) -> Kept:
    guilty = _guilty(left, rng)
    return dataclasses.replace(left.full, dumps=left.full.dumps - guilty, stale=left.full.stale - guilty)


def _culprit_gone(left: Remains, rng: random.Random) -> Kept:
    return left.full.without(_guilty(left, rng))


def _quarter_gone(left: Remains, rng: random.Random) -> Kept:
    def some(ranks: frozenset[int]) -> frozenset[int]:
        return frozenset(rank for rank in sorted(ranks) if rng.random() >= 0.25)

    full = left.full
    return dataclasses.replace(
        full,
        dumps=some(full.dumps),
        stale=some(full.stale),
        logs=some(full.logs),
        stacks=some(full.stacks),
        launchers=frozenset(name for name in sorted(full.launchers) if rng.random() >= 0.25),
    )


def _last(entries: int) -> Way:
    def shorter(left: Remains, rng: random.Random) -> Kept:
        ring = min(entries, left.full.options.ring)
        options = dataclasses.replace(left.full.options, ring=ring, pending_only=False)
        return dataclasses.replace(left.full, options=options)

    return shorter


def _pending_only(left: Remains, rng: random.Random) -> Kept:
    options = dataclasses.replace(left.full.options, pending_only=True)
    return dataclasses.replace(left.full, options=options)


def _no_frames(left: Remains, rng: random.Random) -> Kept:
    options = dataclasses.replace(left.full.options, frames=False, pending_only=False)
    return dataclasses.replace(left.full, options=options)


def _clocks_apart(left: Remains, rng: random.Random) -> Kept:
    layout = left.job.layout
    hosts = sorted({layout.host(rank) for rank in range(layout.world_size)})
    off = {host: rng.uniform(-3, 3) for host in hosts}
    return dataclasses.replace(
        left.full, clocks=tuple(off[layout.host(rank)] for rank in range(layout.world_size))
    )


def _one_node(left: Remains, rng: random.Random) -> Kept:
    """Keep one host's files; its launcher's too, which under srun lies on the first host."""
    layout = left.job.layout
    return _host_alone(left, rng.randrange(layout.world_size // layout.per_host))


def _another_node(left: Remains, rng: random.Random) -> Kept:
    """Keep the files of one host that none of the culprits ran on, where there is one."""
    layout, guilty = left.job.layout, set(left.job.truth.culprits)
    hosts = range(layout.world_size // layout.per_host)
    others = [h for h in hosts if guilty.isdisjoint(range(h * layout.per_host, (h + 1) * layout.per_host))]
    return _host_alone(left, rng.choice(others or list(hosts)))


def _host_alone(left: Remains, host: int) -> Kept:
    layout = left.job.layout
    name = layout.host(host * layout.per_host)
    elsewhere = frozenset(rank for rank in range(layout.world_size) if layout.host(rank) != name)
    own = {f"launcher_{name}.log"} | ({"slurm.out"} if host == 0 else set())
    return dataclasses.replace(left.full.without(elsewhere), launchers=left.full.launchers & own)


def _some_early(left: Remains, rng: random.Random) -> Kept:
    """Let a quarter of the dumps be taken while the job still moved: milliseconds to seconds before its halt."""
    ranks = sorted(left.full.dumps)
    return _taken_early(left, rng, rng.sample(ranks, (len(ranks) + 3) // 4))


def _a_pipeline_early(left: Remains, rng: random.Random) -> Kept:
    """Let dumps of some ranks of one replica (a pipeline, where the job has them) be taken while the job still moved."""
    replica = sorted(left.full.dumps.intersection(rng.choice(left.job.layout.replicas)))
    return _taken_early(left, rng, rng.sample(replica, (len(replica) + 1) // 2))


def _taken_early(left: Remains, rng: random.Random, early: list[int]) -> Kept:
    by = 10 ** rng.uniform(-2.5, 0.7)
    end = {rank: left.full.taken.get(rank, left.outcome.last) for rank in early}
    taken = {rank: max(0.1, end[rank] - by * rng.uniform(0.5, 1)) for rank in early}
    return dataclasses.replace(left.full, taken={**left.full.taken, **taken})


def _cancelled(left: Remains, rng: random.Random) -> Kept:
    """End the job a minute after its halt, before any timeout: dumps are made then, and nothing is logged."""
    if left.frozen_at is None:
        return left.full
    end = left.frozen_at + 60
    alive = left.logs(left.full.clocks, end)
    living = frozenset(rank for rank in range(left.job.layout.world_size) if alive.lives_until(rank, end))
    dumps = _NOBODY if left.silent_recorder else living
    return dataclasses.replace(
        left.full, dumps=dumps, stale=left.full.stale - dumps, taken=dict.fromkeys(dumps, end), cancelled=end
    )


def _mixed(left: Remains, rng: random.Random) -> Kept:
    """Lose dumps (a culprit's more often), take some early, and lose all text half of the time."""
    full, guilty = left.full, left.job.truth.culprits
    kept = frozenset(r for r in sorted(full.dumps) if rng.random() >= (0.3 if r in guilty else 0.12))
    end = {r: full.taken.get(r, left.outcome.last) for r in sorted(kept)}
    early = {r: max(1.0, time - rng.uniform(1, 30)) for r, time in end.items() if rng.random() < 0.08}
    options = dataclasses.replace(
        full.options,
        as_json=full.options.as_json or rng.random() < 0.05,
        pending_only=full.options.pending_only or rng.random() < 0.06,
    )
    lost = dataclasses.replace(full, dumps=kept, taken={**full.taken, **early}, options=options)
    if rng.random() < 0.5 and full.dumps:
        lost = dataclasses.replace(lost, logs=_NOBODY, launchers=frozenset())
    return lost


WAYS: dict[str, Way] = {
    "full": _full,
    "logs only": _logs_only,
    "logs and two victims' dumps": _two_victims,
    "dumps only": _dumps_only,
    "culprit's dump gone, its log there": _culprit_dump_gone,
    "culprit gone altogether": _culprit_gone,
    "a quarter gone": _quarter_gone,
    "last 30 entries": _last(30),
    "last 6 entries": _last(6),
    "pending only": _pending_only,
    "no frames": _no_frames,
    "hosts ±3 s apart": _clocks_apart,
    "one node only": _one_node,
    "a quarter of the dumps early": _some_early,
    "one node, the culprit elsewhere": _another_node,
    "some of a pipeline early": _a_pipeline_early,
    "cancelled a minute after the freeze": _cancelled,
    "mixed losses": _mixed,
}


def collect(left: Remains, way: str) -> Kept:
    """Return what is kept of an incident under one of `WAYS`; the same for the same incident and way."""
    truth = left.job.truth
    return WAYS[way](left, random.Random(f"{way} {truth.kind} {left.incident.seed}"))


def write_incident(
    folder: Path,
    fault: str,
    seed: int,
    *,
    way: str = "full",
    world_size: int | None = None,
    layout: str | None = None,
) -> Truth:
    """Write one incident to `folder`, dumps/ and truth.json (made, and expected to be empty), and return its truth."""
    left = Remains(simulate(fault, seed, world_size=world_size, layout=layout))
    kept = collect(left, way)
    (folder / "dumps").mkdir(parents=True)
    left.write(folder / "dumps", kept)
    truth = left.truth(kept)
    (folder / "truth.json").write_text(json.dumps(truth.to_json()))
    return truth
