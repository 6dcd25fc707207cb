"""The faults by name: what injects each, and which layouts it is drawn for.

An injection edits the programs of a healthy job (or its devices), says in `job.truth` who did it and which
causes are right, and raises `Unsuitable` where the drawn job cannot carry the fault.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.simulator.job import Job
from tests.simulator.layouts import KINDS

from . import attempts, checkpoint_thread, mismatches, moments, outside, participation, stops

Injection = Callable[[Job], None]


def healthy(job: Job) -> None:
    """Nothing is wrong; the job ran to its end."""
    job.truth.status = "no_hang"


_MANY = ("hsdp", "megatron", "expert", "context")
_BUCKETS = ("ddp", "expert", "context")
_LOADERS = ("ddp", "ddp", "fsdp", "hsdp", "expert", "megatron", "context")

FAULTS: dict[str, tuple[Injection, tuple[str, ...]]] = {
    "healthy": (healthy, KINDS),
    "extra_call": (participation.extra_call, KINDS),
    "skipped_call": (participation.skipped_call, KINDS),
    "skipped_step": (participation.skipped_step, ("ddp", "fsdp", "hsdp")),
    "uneven_loader": (participation.uneven_loader, _LOADERS),
    "early_exit": (participation.early_exit, KINDS),
    "crashed_exception": (stops.crashed_exception, KINDS),
    "crashed_oom": (stops.crashed_oom, KINDS),
    "crashed_signal": (stops.crashed_signal, KINDS),
    "handler_barrier": (stops.handler_barrier, KINDS),
    "stuck_rank": (stops.stuck_rank, KINDS),
    "stuck_pending": (stops.stuck_pending, _MANY),
    "two_stuck_ranks": (stops.two_stuck_ranks, ("megatron", "context")),
    "slow_rank": (stops.slow_rank, KINDS),
    "shape_mismatch": (mismatches.shape_mismatch, KINDS),
    "dtype_mismatch": (mismatches.dtype_mismatch, KINDS),
    "other_collective": (mismatches.other_collective, KINDS),
    "missing_bucket": (mismatches.missing_bucket, _BUCKETS),
    "other_buckets": (mismatches.other_buckets, _BUCKETS),
    "other_model": (mismatches.other_model, ("ddp",)),
    "other_order": (mismatches.other_order, _MANY),
    "other_order_in_pairs": (mismatches.other_order_in_pairs, _MANY),
    "skipped_send": (mismatches.skipped_send, ("megatron",)),
    "lost_half": (mismatches.lost_half, ("megatron", "context")),
    "gpu_stall": (outside.gpu_stall, KINDS),
    "network_stall": (outside.network_stall, KINDS),
    "init_hang": (outside.init_hang, ("ddp", "fsdp")),
    "preempted": (outside.preempted, KINDS),
    "several_roots": (stops.several_roots, ("megatron", "context")),
    "zero_splits": (stops.zero_splits, ("expert",)),
    "async_checkpoint": (checkpoint_thread.async_checkpoint, KINDS),
    "slow_network_card": (outside.slow_network_card, KINDS),
    "aborted_unevenly": (moments.aborted_unevenly, KINDS),
    "still_moving": (moments.still_moving, KINDS),
    "two_attempts": (attempts.two_attempts, KINDS),
    "rebuilt_group": (attempts.rebuilt_group, KINDS),
}
