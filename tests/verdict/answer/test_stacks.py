"""Where processes are by their stacks, and what they do or wait for there."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, spy, told

LIBRARY = "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"


def stack(pid: int, call: str, line: int) -> list[str]:
    head = [f"Process {pid}: /opt/venv/bin/python train.py", "Python v3.11.4 (/usr/bin/python3.11)", ""]
    frames = [f"    {call} ({LIBRARY}:3252)", f"    sync (train.py:{line})", "    <module> (train.py:92)", ""]
    return [*head, f'Thread {pid} (idle): "MainThread"', *frames]


def test_local_ranks_on_the_command_lines_of_one_host_place_stacks(tmp_path: Path) -> None:
    lines = []
    for rank in range(3):
        frame = "_load (data/webset.py:74)" if rank == 1 else f"all_reduce ({LIBRARY}:2810)"
        lines += [f"Process {70 + rank}: python -u fit.py --local-rank={rank}", "Python v3.12.3", ""]
        lines += [f'Thread {70 + rank} (active): "MainThread"', f"    {frame}", "    train (fit.py:40)", ""]
    assert judged(told(tmp_path, lines)).culprit_ranks == (1,)


def test_stacks_of_processes_of_no_known_rank_are_compared_by_their_ids(tmp_path: Path) -> None:
    alike = [line for pid in (70, 71, 72) for line in stack(pid, "all_reduce", 41)]
    odd = judged(told(tmp_path / "odd", alike + stack(73, "all_reduce", 55)))
    assert odd.summary.startswith(
        "Process 73 alone is at distributed_c10d.py:3252 in all_reduce (from train.py:55"
    )
    assert "rocesses 70, 71 and 72 are at" in odd.explanation and odd.culprit_ranks == ()
    two = judged(told(tmp_path / "two", stack(70, "all_reduce", 41) + stack(73, "barrier", 55)))
    assert "alone is" not in two.summary + two.explanation


def test_what_a_rank_does_in_a_library_outside_of_collectives_is_told(tmp_path: Path) -> None:
    frames = {0: "log_tensor_stats (wandb/wandb_torch.py:240)", 4: "synchronize (torch/cuda/__init__.py:688)"}
    lines = [
        line
        for rank, frame in frames.items()
        for line in (
            f"rank {rank}:",
            f'Thread {rank} (active): "MainThread"',
            f"    {frame}",
            f"    step (fit.py:{rank + 1})",
        )
    ]
    lines += [f"step {n} loss 2.6 {'213.40' if n == 1000 else '0.91'}s" for n in range(998, 1003)]
    said = " ".join(told(tmp_path, lines).to_text().split())
    assert "rank 0 is in log_tensor_stats (wandb_torch.py:240), called at fit.py:1 (step)" in said


def test_what_processes_wait_for_is_said_by_frames_that_are_known(tmp_path: Path) -> None:
    queue, executor = (
        "vllm/distributed/device_communicators/shm_broadcast.py",
        "vllm/v1/executor/multiproc_executor.py",
    )
    polls = ("poll (zmq/sugar/poll.py:106)", f"dequeue ({queue}:794)")
    lines = spy(
        "engine:", 40, *polls, f"get_response ({executor}:387)", "run_busy_loop (vllm/v1/engine/core.py:1402)"
    )
    for worker in (0, 1):
        lines += spy(f"pipeline stage {worker}:", 50 + worker, *polls, f"worker_busy_loop ({executor}:944)")
    assert (
        "rocess 40 (engine) alone is waiting for a worker's response"
        in judged(told(tmp_path, lines)).explanation
    )


def test_all_ranks_in_a_first_collective_point_to_the_path_between_them(tmp_path: Path) -> None:
    frames = (
        "synchronize (torch/cuda/streams.py:105)",
        "__init__ (vllm/distributed/device_communicators/pynccl.py:111)",
    )
    ranks = [
        f"ws:{pid}:{pid} [0] NCCL INFO ncclCommInitRank comm 0x5{rank}c8 rank {rank} nranks 2 cudaDev 0 nvmlDev {rank} busId {rank + 1}000 commId 0x8e4 - Init COMPLETE"
        for rank, pid in enumerate((302, 308))
    ]
    stacks = [
        line for pid in (302, 308) for line in (f"py-spy of {pid}:", *(f"    {frame}" for frame in frames))
    ]
    verdict = judged(told(tmp_path, [*ranks, *stacks]))
    assert "these are all ranks of the job" in verdict.explanation and verdict.culprit_ranks == ()
    assert "NCCL_P2P_DISABLE=1" in verdict.collect[0].text
