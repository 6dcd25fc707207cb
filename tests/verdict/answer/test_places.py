"""Where processes are: labelled parts of a text, and GPUs."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, told


def test_busy_and_idle_gpus_are_told_apart(tmp_path: Path) -> None:
    rows = []
    for gpu, (watts, percent) in enumerate(((131, 100), (128, 100), (70, 0))):
        rows += [
            f"|   {gpu}  NVIDIA H100 80GB HBM3          On  |   00000000:1{gpu}:00.0 Off |                    0 |",
            f"| N/A   39C    P0            {watts:>3}W /  700W |   61204MiB /  81559MiB |    {percent:>3}%      Default |",
        ]
    explanation = judged(told(tmp_path, ["it hangs, nvidia-smi:", *rows])).explanation
    assert "GPUs 0 and 1 at 100 % (128 to 131 W) and GPU 2 at 0 % (70 W)" in explanation


def test_the_rows_of_a_query_of_nvidia_smi_are_read(tmp_path: Path) -> None:
    rows = [
        f"{gpu}, {percent} %, {watts}.10 W"
        for gpu, percent, watts in ((0, 100, 131), (1, 100, 128), (2, 0, 70))
    ]
    assert (
        "GPUs 0 and 1 at 100 % (128 to 131 W) and GPU 2 at 0 % (70 W)"
        in judged(told(tmp_path / "one", rows)).explanation
    )


def test_the_rank_whose_gpu_alone_is_idle_is_named_where_its_stack_is_elsewhere(tmp_path: Path) -> None:
    rows = [f"{gpu}, {0 if gpu == 2 else 100} %, 140.10 W" for gpu in range(4)]
    stacks = ["rank 1:", "    synchronize (torch/cuda/__init__.py:1040)", "    step (train.py:40)"]
    reads = ["rank 2:", "    read (ssl.py:1103)", "    load_images (data.py:131)"]
    verdict = judged(told(tmp_path / "reads", [*rows, *stacks, *reads]))
    assert (verdict.cause, verdict.culprit_ranks) == ("stuck_rank", (2,))
    waits = [*rows, *stacks, "rank 2:", *stacks[1:]]
    assert judged(told(tmp_path / "waits", waits)).culprit_ranks == ()
