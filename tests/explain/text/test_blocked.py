"""Who alone is blocked elsewhere, while all others wait at one line for their devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import judged, short, timeout, told

STEP = [f'  File "{SCRIPT}", line 63 in train_step', f'  File "{SCRIPT}", line 90 in main']
READ = ['  File "/usr/lib/python3.11/ssl.py", line 1163 in read']
LOAD = [f'  File "{SCRIPT}", line 40 in train_step', f'  File "{SCRIPT}", line 90 in main']
HEAD = "Current thread 0x00007f4b7d1296c0 (most recent call first):"


def _job(odd: list[str], minutes: int, ranks: int = 5, stacks: int = 5) -> dict[str, str | list[str]]:
    """Return the stacks of ranks, of which rank 2's is `odd`, and the output of a job that was cancelled so long after a step."""
    steps = [f"2026-11-20 15:10:0{n} - INFO - step {700 + n} | loss 2.5" for n in range(4)]
    end = f"slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-11-20T15:{10 + minutes}:03 ***"
    own = {f"stack_rank_{r}.txt": [HEAD, *(odd if r == 2 else STEP)] for r in range(stacks)}
    return {**own, "slurm-7.out": [*steps, end], **{f"rank_{r}.log": ["hello"] for r in range(ranks)}}


@pytest.mark.parametrize(
    ("odd", "minutes", "stacks"),
    [
        ([*READ, *LOAD], 5, 5),  # a step that takes five minutes is nothing unusual
        (LOAD, 31, 5),  # it waits for its device at another line
        ([f'  File "{TORCH}/_tensor.py", line 5 in item', *LOAD], 31, 5),
        ([*READ, *LOAD], 31, 4),  # of one nothing is known
    ],
)
def test_nobody_is_named_where_it_may_be_a_moment_of_a_healthy_job(
    tmp_path: Path, odd: list[str], minutes: int, stacks: int
) -> None:
    verdict = told(tmp_path, _job(odd, minutes, stacks=stacks)).verdict
    assert verdict is not None and (verdict.cause, verdict.culprit_ranks) == ("crashed_rank", ())
    assert verdict.confidence != "high"


def test_without_an_end_or_a_timeout_stacks_tell_of_no_freeze(tmp_path: Path) -> None:
    files = _job([*READ, *LOAD], 31)
    del files["slurm-7.out"]
    assert told(tmp_path, files).status == "inconclusive"


SYNC = [f'  File "{TORCH}/cuda/__init__.py", line 1040 in synchronize']


def _synchronized(odd: list[str], others: list[str] = SYNC) -> dict[str, str | list[str]]:
    return {f"stack_rank_{r}.txt": [HEAD, *(odd if r == 2 else [*others, *STEP])] for r in range(5)}


def test_who_computes_while_all_others_synchronize_their_devices_keeps_them_waiting(tmp_path: Path) -> None:
    """Stacks of one moment, of a job of which nothing says that it stopped: no more than a guess."""
    report = told(tmp_path, _synchronized([f'  File "{SCRIPT}", line 12 in swap_in', *LOAD]))
    assert short(report) == ("stuck_rank", (2,), "low")


def test_in_a_job_that_is_known_to_have_stopped_it_is_the_usual_reading(tmp_path: Path) -> None:
    files = _synchronized([f'  File "{SCRIPT}", line 12 in swap_in', *LOAD])
    end = "slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-11-20T15:41:03 ***"
    files["slurm-7.out"] = ["2026-11-20 15:10:03 - INFO - step 703 | loss 2.5"] * 4 + [end]
    assert short(told(tmp_path, files))[:2] == ("stuck_rank", (2,))


@pytest.mark.parametrize(
    "odd",
    [
        [*SYNC, *LOAD],  # it waits for its device at another line
        [f'  File "{TORCH}/nn/modules/linear.py", line 125 in forward', *LOAD],  # it launches its kernels
    ],
)
def test_who_is_at_its_own_step_keeps_nobody_waiting(tmp_path: Path, odd: list[str]) -> None:
    assert told(tmp_path, _synchronized(odd)).status == "inconclusive"


def test_a_function_of_the_users_that_is_called_synchronize_is_no_wait(tmp_path: Path) -> None:
    own = [f'  File "{SCRIPT}", line 7 in synchronize']
    odd = [f'  File "{SCRIPT}", line 12 in swap_in', *LOAD]
    assert told(tmp_path, _synchronized(odd, own)).status == "inconclusive"


ITEM = [f'  File "{TORCH}/_tensor.py", line 5 in item']


def _looked_at(odd: list[list[str]]) -> dict[str, str | list[str]]:
    """Return py-spy's stacks of five processes at several times, of which rank 2's are `odd`."""

    def spied(pid: int, stack: list[str]) -> list[str]:
        frames = [line.split('"')[1::2] + line.split(", line ")[1].split(" in ") for line in stack]
        lines = [f"    {name} ({file}:{line})" for file, line, name in frames]
        return [
            f"Process {pid}: python3 -u train.py",
            "Python v3.11.7 (/usr/bin/python3.11)",
            "",
            f'Thread {pid} (idle): "MainThread"',
            *lines,
        ]

    return {
        f"look_{time}/{rank}.txt": spied(700 + rank, stack if rank == 2 else [*ITEM, *STEP])
        for time, stack in enumerate(odd)
        for rank in range(5)
    }


@pytest.mark.parametrize("looks", [[[*READ, *LOAD]], [[*LOAD], [*READ, *LOAD]]])
def test_one_look_or_another_place_proves_nothing(tmp_path: Path, looks: list[list[str]]) -> None:
    assert told(tmp_path, _looked_at(looks)).status == "inconclusive"


def _native(frames: list[str]) -> list[str]:
    return [f"#{n}  {'0x00007fff2f7c8a5d in ' if not n else ''}{frame}" for n, frame in enumerate(frames)]


SYNCHRONIZES = [
    "?? ()",
    "clock_gettime ()",
    "cuStreamSynchronize () from /usr/lib/libcuda.so.1",
    "at::_ops::item::call ()",
]


def _natively(odd: list[str]) -> dict[str, str | list[str]]:
    head = 'Thread 1 (Thread 0x7fb10d400000 (LWP 50) "python"):'
    return {f"gdb_rank_{r}.txt": [head, *_native(odd if r == 2 else SYNCHRONIZES)] for r in range(4)}


@pytest.mark.parametrize(
    "odd",
    [
        ["pthread_cond_wait () from /lib/libc.so.6", "torch::autograd::ReadyQueue::pop()"],
        ["futex_wait () at futex-internal.h:320", "c10d::TCPStore::wait()"],
        ["ncclLaunchKernel () from libnccl.so.2"],
    ],
)
def test_a_backward_pass_and_communication_are_no_wait_of_the_hosts(tmp_path: Path, odd: list[str]) -> None:
    verdict = told(tmp_path, _natively(odd)).verdict
    assert verdict is not None and verdict.culprit_ranks == ()


def test_of_three_stacks_the_one_that_reads_while_the_others_synchronize_is_a_guess(tmp_path: Path) -> None:
    files = {name: stack for name, stack in _synchronized([*READ, *LOAD]).items() if name[11] in "124"}
    assert short(told(tmp_path, files)) == ("stuck_rank", (2,), "low")


def test_who_prints_on_while_all_others_wait_for_their_timeout_is_named(tmp_path: Path) -> None:
    waits = [timeout(rank) for rank in (1, 2, 3)]  # from 03:21:38 on
    writes = [f"[03:{minute}:10] [rank 0] writing shard {minute}" for minute in (23, 26, 29)]
    verdict = judged(told(tmp_path, [*writes, *waits]))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (0,))
    assert verdict.title.startswith("Rank 0 still worked while the others waited")
    before = [f"[03:{minute}:10] [rank 0] writing shard {minute}" for minute in (17, 19, 21)]
    assert "still worked" not in judged(told(tmp_path / "before", [*before, *waits])).summary


def test_all_others_in_main_process_first_wait_for_rank_0(tmp_path: Path) -> None:
    trainer = "/opt/venv/lib/python3.9/site-packages/transformers/training_args.py"
    stack = (
        f'[rank2]: Traceback (most recent call last):\n[rank2]:   File "/workspace/loader.py", line 51, in get\n'
        f'[rank2]:   File "{trainer}", line 2390, in main_process_first\n[rank2]:     dist.barrier()\n'
    )
    error = "RuntimeError: NPU function error: aclrtSynchronizeDevice, error code is 507046"
    text = f"{stack}[rank2]: {error}\n[rank1]: {error}\n"
    verdict = judged(told(tmp_path, {"paste.txt": text}))
    assert (verdict.culprit_ranks, verdict.confidence) == ((0,), "low")


def test_who_works_while_the_other_processes_wait_for_its_next_message_is_stuck(tmp_path: Path) -> None:
    """Of an engine's workers only process ids are known."""
    lines = [
        "vLLM stops answering. py-spy of the driver (rank 0) and of a worker:",
        "=== rank 0 ===",
        "Process 1021: python -m server",
        'Thread 1133 (active): "Executor-0"',
        "    create_index (outlines/fsm/regex.py:874)",
        "    execute_model (vllm/worker/worker_base.py:272)",
        "=== a worker ===",
        "Process 1146: python -m server",
        'Thread 1146 (active): "MainThread"',
        "    acquire_read (vllm/distributed/device_communicators/shm_broadcast.py:372)",
        "    start_worker_execution_loop (vllm/executor/multiproc_worker_utils.py:223)",
    ]
    assert short(told(tmp_path / "a", lines)) == ("stuck_rank", (0,), "low")
    lines[-2:] = ["    forward (model.py:10)", "    main (train.py:3)"]
    assert short(told(tmp_path / "b", lines))[1] == ()
