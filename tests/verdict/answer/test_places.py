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
    assert "GPUs 0-1 at 100 % (128 to 131 W); GPU 2 at 0 % (70 W)" in explanation
