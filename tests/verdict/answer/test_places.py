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


def test_where_stacks_part_in_a_library_its_lines_are_told(tmp_path: Path) -> None:
    """Rank 3 left the loop of a trainer whose next line of the user's is the same for all."""
    lines = []
    for rank in range(4):
        inner = [f"barrier ({LIBRARY}:2709)", "train (transformers/trainer.py:1536)"]
        if rank != 3:
            inner = ["backward (torch/autograd/__init__.py:173)", "train (transformers/trainer.py:1423)"]
        lines += [f"rank {rank}:", f'Thread {70 + rank} (active): "MainThread"']
        lines += [f"    {frame}" for frame in (*inner, "main (fit.py:214)", "<module> (fit.py:231)")]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.culprit_ranks, verdict.confidence) == ((3,), "low")
    assert verdict.title == "Rank 3 called barrier (fit.py:214) while the others are in backward (fit.py:214)"
    assert (
        "rank 3 at trainer.py:1536 (train); ranks 0-2 in backward at trainer.py:1423 (train)"
        in verdict.explanation
    )


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
    told_of = judged(told(tmp_path, lines)).explanation
    assert "rank 0 in log_tensor_stats (wandb_torch.py:240), called at fit.py:1 (step)" in told_of
