"""Faults with a past: an earlier attempt in the same folder, groups that were built once more."""

from __future__ import annotations

import dataclasses

from tests.simulator.calls import Batch, Call
from tests.simulator.job import Job

from . import participation, stops


def two_attempts(job: Job) -> None:
    """The job failed, was started again and froze: its logs go on in the same files, and whoever left no dump this time
    has one of the attempt before.
    """
    now = job.rng.choice(("stuck_rank", "crashed_signal", "crashed_exception", "extra_call", "early_exit"))
    inject = participation if hasattr(participation, now) else stops
    getattr(inject, now)(job)
    job.shows = now
    job.earlier = job.rng.choice(("stuck_rank", "crashed_exception", "crashed_signal"))


def rebuilt_group(job: Job) -> None:
    """Between two epochs all groups are destroyed and made again under their old names; a rank stops afterwards, or
    makes a call too many.
    """
    job.first_epoch = 1
    if job.rng.random() < 0.6:
        stops.stuck_rank(job)
        job.shows = "stuck_rank"
    else:
        participation.extra_call(job)
        job.shows = "extra_call"
    again = job.layout.rebuild()
    for program in job.programs:
        for place, item in enumerate(program):
            if item.where.epoch < 1 and item.where.phase != "final":
                continue
            if isinstance(item, Call):
                program[place] = dataclasses.replace(item, group=again[item.group.gid])
            elif isinstance(item, Batch):
                calls = [dataclasses.replace(call, group=again[call.group.gid]) for call in item.calls]
                program[place] = dataclasses.replace(item, calls=calls)
