"""Accelerate's check of shapes: the processes and the shapes that it lists."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import short, told

ERROR = "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes across devices must be valid."


def _raised(shapes: list[str], prefix: str = "") -> list[str]:
    listed = [f"  - Process {rank}: {shape}" for rank, shape in enumerate(shapes)]
    lines = [ERROR, "", "Operation: `accelerate.utils.operations.gather`", "Input shapes:", *listed]
    return [prefix + line for line in lines]


ODD = ["[8, 512]", "[8, 512]", "[8, 498]", "[8, 512]"]


def test_the_process_of_another_shape_is_named(tmp_path: Path) -> None:
    assert short(told(tmp_path, _raised(ODD))) == ("shape_mismatch", (2,), "low")


def test_that_all_processes_raise_it_is_nobodys_death(tmp_path: Path) -> None:
    lines = [line for rank in range(4) for line in _raised(ODD, f"[rank{rank}]: ")]
    assert short(told(tmp_path, lines))[:2] == ("shape_mismatch", (2,))


@pytest.mark.parametrize(
    "shapes", [["[8, 512]", "[8, 498]"], ["[8]", "[8]", "[9]", "[9]"], ["[8]", "[9]", "[10]"]]
)
def test_without_a_majority_nobody_is_odd(tmp_path: Path, shapes: list[str]) -> None:
    assert short(told(tmp_path, _raised(shapes)))[1] == ()
