"""Where ranks stood by their stacks: in a collective, also in one that torch makes from C++, or at work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import judged, short, spy, told
from tests.verdicts import TIMED_OUT

WAITING = [f'  File "{TORCH}/distributed/distributed_c10d.py", line 2900 in broadcast']
WAITING += [f'  File "{SCRIPT}", line 31 in restore', f'  File "{SCRIPT}", line 80 in main']


def _stacks(inside: list[str]) -> dict[str, str | list[str]]:
    """Return the stacks of three ranks in a broadcast and of rank 0 elsewhere, and the timeouts of the three."""
    head = "Current thread 0x00007f4b7d1296c0 (most recent call first):"
    stacks = {f"stack_rank_{rank}.txt": [head, *(WAITING if rank else inside)] for rank in range(4)}
    return {**stacks, "job.log": [f"[rank{rank}]: {TIMED_OUT}" for rank in (1, 2, 3)]}


@pytest.mark.parametrize(
    ("frame", "file"),
    [
        ("_verify_param_shape_across_processes", "distributed/utils.py"),
        ("_sync_params_and_buffers", "distributed/utils.py"),
        ("_distributed_broadcast_coalesced", "nn/parallel/distributed.py"),
    ],
)
def test_who_is_in_a_collective_that_cpp_makes_is_not_stuck(tmp_path: Path, frame: str, file: str) -> None:
    inside = [f'  File "{TORCH}/{file}", line 286 in {frame}', f'  File "{SCRIPT}", line 84 in main']
    cause, ranks, _ = short(told(tmp_path, _stacks(inside)))
    assert ranks == (0,) and cause in ("rank_conditional_collective", "collective_mismatch")


def test_who_waits_below_torchs_own_dispatch_is_in_a_collective(tmp_path: Path) -> None:
    inside = [f'  File "{TORCH}/_ops.py", line 1279 in __call__']
    inside += [f'  File "{TORCH}/distributed/_functional_collectives.py", line 142 in wait_tensor']
    inside += [f'  File "{SCRIPT}", line 15 in log_norm', f'  File "{SCRIPT}", line 84 in main']
    cause, ranks, _ = short(told(tmp_path, _stacks(inside)))
    assert ranks == (0,) and cause in ("rank_conditional_collective", "collective_mismatch")


def test_who_builds_something_under_such_a_name_of_the_users_is_at_work(tmp_path: Path) -> None:
    inside = [f'  File "{SCRIPT}", line 9 in _sync_params_and_buffers', f'  File "{SCRIPT}", line 84 in main']
    assert short(told(tmp_path, _stacks(inside)))[:2] == ("stuck_rank", (0,))


def _raised(rank: int, line: int) -> list[str]:
    """Return the traceback of a rank that timed out in the broadcast that the stacks show, called from `line`."""
    frames = [(SCRIPT, 80, "main"), (SCRIPT, line, "restore")]
    frames.append((f"{TORCH}/distributed/distributed_c10d.py", 2900, "broadcast"))
    shown = [f'  File "{file}", line {number}, in {name}' for file, number, name in frames]
    return [f"[rank{rank}]: {text}" for text in ["Traceback (most recent call last):", *shown, TIMED_OUT]]


@pytest.mark.parametrize(
    ("ranks", "raised", "line"),
    [
        (4, (1, 3), 31),  # of two remaining stacks nobody can say whose is which
        (4, (0, 1, 3), 33),  # the ranks went on after their stacks were taken
        (2, (1,), 31),
    ],
)
def test_stacks_of_a_terminal_are_given_to_no_rank_by_elimination(
    tmp_path: Path, ranks: int, raised: tuple[int, ...], line: int
) -> None:
    alone = [f'  File "{SCRIPT}", line 27 in restore', f'  File "{SCRIPT}", line 80 in main']
    stacks = [
        text
        for n in range(ranks)
        for text in (
            f"Current thread 0x00007f4b7d{n}296c0 (most recent call first):",
            *(alone if n == 1 else WAITING),
        )
    ]
    output = [text for rank in raised for text in _raised(rank, line)]
    verdict = told(tmp_path, {"screen.txt": [*stacks, *output]}, world_size=ranks).verdict
    assert verdict is not None and verdict.location is None


@pytest.mark.parametrize(
    "frames",
    [
        ["all_reduce (vllm/distributed/device_communicators/pynccl.py:139)"],
        ["recv_object (sglang/srt/distributed/parallel_state.py:1131)"],
        ["wait (deepspeed/runtime/zero/partition_parameters.py:95)"],
        ["_all_gather_flat_param (torch/distributed/fsdp/_flat_param.py:1453)"],
        [
            "synchronize (torch/cuda/__init__.py:985)",
            "_communicate (megatron/core/pipeline_parallel/p2p_communication.py:390)",
        ],
    ],
)
def test_who_waits_in_a_librarys_own_collective_waits_for_the_one_at_work(
    tmp_path: Path, frames: list[str]
) -> None:
    lines = []
    for rank in range(3):
        own = ["acquire (filelock/_api.py:344)", "build (steps.py:12)"] if rank == 1 else frames
        lines += [f"Process {70 + rank}: python serve.py [rank {rank}]", "Python v3.12.3", ""]
        lines += [
            f'Thread {70 + rank} (idle): "MainThread"',
            *(f"    {frame}" for frame in own),
            "    run (steps.py:40)",
            "",
        ]
    assert short(told(tmp_path, {"stacks.txt": lines}))[:2] == ("stuck_rank", (1,))


def test_calls_of_two_operations_that_a_library_made_are_told_apart_without_a_users_line(
    tmp_path: Path,
) -> None:
    lines = []
    for rank in range(4):
        op = "all_reduce" if rank == 2 else "broadcast_object_list"
        lines += [f"Process {70 + rank}: python fit.py [rank {rank}]", "Python v3.12.3", ""]
        lines += [
            f'Thread {70 + rank} (idle): "MainThread"',
            f"    {op} (torch/distributed/distributed_c10d.py:2501)",
        ]
        lines += ["    sync (lightning/fabric/utilities/distributed.py:225)", ""]
    assert short(told(tmp_path, {"stacks.txt": lines})) == ("rank_conditional_collective", (2,), "low")


@pytest.mark.parametrize(("failed", "cause"), [(9, "rank_conditional_collective"), (12, "stuck_rank")])
def test_who_stands_in_the_line_in_which_its_wait_timed_out_then_is_in_a_call(
    tmp_path: Path, failed: int, cause: str
) -> None:
    """Below the wait of a call that was not waited for at once there is no Python frame."""
    files = _stacks([f'  File "{SCRIPT}", line 9 in exchange', f'  File "{SCRIPT}", line 84 in main'])
    raised = [
        "Traceback (most recent call last):",
        '  File "/other/train.py", line 84, in main',
        "    exchange()",
    ]
    raised += [
        f'  File "/other/{SCRIPT.rsplit("/")[-1]}", line {failed}, in exchange',
        "    work.wait()",
        TIMED_OUT,
    ]
    files["rank0.log"] = [f"[rank0]: {line}" for line in raised]
    assert short(told(tmp_path, files))[:2] == (cause, (0,))


def test_who_spins_in_a_call_of_nccl_is_in_that_collective(tmp_path: Path) -> None:
    spy = [
        'Thread 310 (active+gil): "MainThread"',
        "    sched_yield (libc.so.6)",
        "    ncclProxySaveOp (libnccl.so.2)",
    ]
    spy += ["    ncclAllGather (libnccl.so.2)", "    gather_logits (model.py:672)", "    step (serve.py:20)"]
    waiting = [
        'Thread 310 (idle): "MainThread"',
        "    broadcast (torch/distributed/distributed_c10d.py:2810)",
        "    step (serve.py:9)",
    ]
    cause, ranks, _ = short(told(tmp_path, {"stack_rank_0.txt": spy, "stack_rank_1.txt": waiting}))
    assert (cause, ranks) == ("rank_conditional_collective", ())


def test_who_waits_in_a_librarys_own_gather_is_in_a_collective(tmp_path: Path) -> None:
    """Its wait is in C++ below the library's line, and the one rank that is elsewhere is awaited."""
    loop = ["evaluation_loop (transformers/trainer.py:4398)", "main (train.py:212)"]
    gathers = ["_pad_across_processes (accelerate/utils/operations.py:672)"]
    gathers += ["pad_across_processes (accelerate/utils/operations.py:690)", *loop]
    grades = ["simplify (sympy/simplify/simplify.py:706)", "is_equiv (grade.py:88)", *loop]
    lines = ["It hangs in evaluation. GPU 2 is at 0 %, all others at 100 %.", ""]
    for rank in range(4):
        title = f"Process {40 + rank}: python train.py (RANK={rank})"
        lines += spy(title, 40 + rank, *(grades if rank == 2 else gathers))
    assert short(told(tmp_path, lines))[:2] == ("stuck_rank", (2,))


def test_stacks_that_did_not_change_between_two_captures_show_more_than_a_moment(tmp_path: Path) -> None:
    wait = "all_reduce (torch/distributed/distributed_c10d.py:2806)"
    lines = [line for rank in (0, 1) for line in spy(f"rank {rank}:", 40 + rank, wait, "step (train.py:14)")]
    once = judged(told(tmp_path / "once", lines))
    again = judged(
        told(tmp_path / "again", ["It hangs. The py-spy dumps a minute later look the same.", "", *lines])
    )
    assert "one stack does not show" in once.summary and "as the reporter saw more than once" in again.summary
    assert not any("twice" in step for step in again.advice)
