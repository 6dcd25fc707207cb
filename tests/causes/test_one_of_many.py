"""What all ranks show is nobody's fault, and what one alone waits for on its host is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import c10, judged, told

LATE = "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, Timeout(ms)=1800000) ran for 23558{rank}61 milliseconds before timing out."


def _stack(rank: int, *frames: str) -> list[str]:
    return [f"rank {rank}:", *(f"    {frame}" for frame in frames), "    train_step (training.py:1402)", ""]


@pytest.mark.parametrize(
    ("inner", "says"),
    [
        ("_try_get_data (torch/utils/data/dataloader.py:1251)", "is waiting for a batch"),
        ("step (adam.py:8)", "never entered all_reduce"),
    ],
)
def test_who_alone_is_elsewhere_while_all_others_reduce_is_named(
    tmp_path: Path, inner: str, says: str
) -> None:
    reduces = "finish_grad_sync (megatron/core/distributed/param_and_grad_buffer.py:447)"
    lines = [
        *_stack(0, "all_reduce (torch/distributed/distributed_c10d.py:2806)"),
        *_stack(1, reduces),
        *_stack(2, inner),
    ]
    verdict = judged(told(tmp_path, lines))
    assert verdict.culprit_ranks == (2,) and says in verdict.explanation


def test_an_abort_after_a_message_that_all_ranks_print_names_nobody(tmp_path: Path) -> None:
    lines = [
        f"[default{rank}]:HW Exception by GPU node-6 (Agent handle: 0x5d{rank}) reason :GPU Hang"
        for rank in (3, 0, 1, 2)
    ]
    end = "E0116 11:20:44.116000 2210 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: -6) local_rank: 3 (pid: 2291) of binary: /opt/venv/bin/python3"
    assert judged(told(tmp_path, [*lines, end])).culprit_ranks == ()


def test_watchdogs_that_are_all_far_too_late_put_no_path_in_question(tmp_path: Path) -> None:
    lines = [c10(rank, f"[Rank {rank}] {LATE.format(seq=33, rank=rank)}") for rank in range(4)]
    verdict = judged(told(tmp_path, ["world_size=4", *lines]))
    assert verdict.cause == "unknown" and "stopped or suspended" in verdict.explanation


def test_a_job_that_was_requeued_is_judged_by_its_last_start(tmp_path: Path) -> None:
    lines = [
        "epoch 11 it 4150/5004 loss 2.2",
        "slurmstepd: error: *** STEP 448.0 ON c07 CANCELLED AT 2022-06-14T03:40:44 DUE TO PREEMPTION ***",
    ]
    barrier = "RuntimeError: Timed out initializing process group in store based barrier on rank: 5, for key: store_based_barrier_key:1 (world_size=8, worker_count=16, timeout=0:30:00)"
    verdict = judged(told(tmp_path, [*lines, "submitit INFO - Starting with JobEnvironment", barrier]))
    assert (verdict.cause, verdict.culprit_ranks) == ("init_hang", ())
