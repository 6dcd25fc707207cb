"""Faults of the moment at which dumps are made: while the job moves, or after its calls were aborted."""

from __future__ import annotations

from tests.simulator.engine import Outcome
from tests.simulator.job import Job

from . import stops


def still_moving(job: Job) -> None:
    """Nothing is wrong; somebody collects the dumps of a job that runs on, seconds apart."""
    job.truth.status = "inconclusive"
    job.after = _look


def _look(job: Job, outcome: Outcome) -> None:
    """Let all dumps be made at one moment but one rank's or one host's, or all of them within some seconds."""
    rng, ranks = job.rng, range(job.layout.world_size)
    at, spread = outcome.last * rng.uniform(0.5, 0.95), rng.uniform(1, 12)
    way = rng.choice(("rank", "host", "all"))
    late = job.pick_rank()
    for rank in ranks:
        apart = rank == late if way == "rank" else job.layout.host(rank) == job.layout.host(late)
        lag = rng.uniform(0, spread) if way == "all" else spread * rng.choice((-1.0, 1.0)) if apart else 0.0
        job.taken[rank] = max(0.5, at + lag)
    job.seen_until = max(job.taken.values()) + 0.5


def aborted_unevenly(job: Job) -> None:
    """A rank dies; its peers abort their communicators, and some recorders count aborted calls as completed."""
    job.rng.choice((stops.crashed_exception, stops.crashed_signal, stops.crashed_oom))(job)
    job.shows = "crashed_exception"
    job.after = _abort


def _abort(job: Job, outcome: Outcome) -> None:
    rng = job.rng
    waiting = [state for state in outcome.ranks if state.unfinished]
    for state in rng.sample(waiting, rng.randrange(1, max(2, len(waiting)))):
        for made in list(state.unfinished)[: rng.choice((1, 1, 2, 4))]:
            if made.started is not None:
                made.completed = outcome.last + 0.5
