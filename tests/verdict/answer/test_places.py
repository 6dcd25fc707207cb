"""Where processes are: stacks, labelled parts of a text, and GPUs."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, told

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


def test_a_native_stack_shows_which_call_of_the_library_it_is_in(tmp_path: Path) -> None:
    frames = (
        "ncclLocalOpAppend (libnccl.so.2)",
        "ncclGroupEndInternal (libnccl.so.2)",
        "ncclAllReduce (libnccl.so.2)",
        "all_reduce (torch/distributed/distributed_c10d.py:4521)",
        "step (moe.py:85)",
    )
    head = ["$ py-spy dump --native --pid 41   # rank 9", "Process 41: python moe.py", ""]
    lines = [*head, 'Thread 41 (active): "MainThread"', *(f"    {frame}" for frame in frames)]
    assert (
        "rank 9 in ncclAllReduce, at ncclLocalOpAppend, called at moe.py:85 (step)"
        in judged(told(tmp_path, lines)).explanation
    )


def test_stacks_of_processes_of_no_known_rank_are_compared_by_their_ids(tmp_path: Path) -> None:
    alike = [line for pid in (70, 71, 72) for line in stack(pid, "all_reduce", 41)]
    odd = judged(told(tmp_path / "odd", alike + stack(73, "all_reduce", 55)))
    assert odd.summary.startswith(
        "Process 73 alone is at distributed_c10d.py:3252 in all_reduce (from train.py:55"
    )
    assert "rocesses 70, 71 and 72 are at" in odd.explanation and odd.culprit_ranks == ()
    two = judged(told(tmp_path / "two", stack(70, "all_reduce", 41) + stack(73, "barrier", 55)))
    assert "alone is" not in two.summary + two.explanation


def test_busy_and_idle_gpus_are_told_apart(tmp_path: Path) -> None:
    rows = []
    for gpu, (watts, percent) in enumerate(((131, 100), (128, 100), (70, 0))):
        rows += [
            f"|   {gpu}  NVIDIA H100 80GB HBM3          On  |   00000000:1{gpu}:00.0 Off |                    0 |",
            f"| N/A   39C    P0            {watts:>3}W /  700W |   61204MiB /  81559MiB |    {percent:>3}%      Default |",
        ]
    explanation = judged(told(tmp_path, ["it hangs, nvidia-smi:", *rows])).explanation
    assert "GPUs 0-1 at 100 % (128 to 131 W); GPU 2 at 0 % (70 W)" in explanation
