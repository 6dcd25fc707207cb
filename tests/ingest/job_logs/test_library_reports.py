"""Reports of libraries: without which rank a tensor of Horovod cannot be reduced, and which process gave Accelerate another shape."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import short, told
from tests.verdicts import blame, level

HEAD = "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds."
OLD = [HEAD, "Stalled ops:", "grad_3 [missing ranks: 5]", "grad_4 [missing ranks: 5]"]
NEW = [
    f"[2026-02-02 21:19:07.345988: W horovod/common/stall_inspector.cc:105] {HEAD}",
    "Missing ranks:",
    "5: [grad_3, grad_4 ...]",
]


@pytest.mark.parametrize("lines", [OLD, NEW, [*OLD, *OLD], [f"[1,0]<stderr>:{line}" for line in NEW]])
def test_the_rank_that_all_tensors_wait_for_is_named(tmp_path: Path, lines: list[str]) -> None:
    report = told(tmp_path, lines)
    assert blame(report) == ("hang", "stuck_rank", (5,)) and level(report) == "low"


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (
            [HEAD, "Stalled ops:", "grad_3 [missing ranks: 5]", "grad_4 [missing ranks: 2]"],
            "hang",
        ),  # different tensors
        ([HEAD, "Missing ranks:", "2: [grad_4]", "5: [grad_3]"], "hang"),
        # of four: one rank submits what others do not
        ([HEAD, "Stalled ops:", "grad_3 [missing ranks: 1, 2, 3]"], "hang"),
        ([HEAD, "Stalled ops:", "grad_3 [ready ranks: 0, 1]", "grad_4 [ready ranks: 2]"], "hang"),
        ([*OLD, "step 12 loss 2.1", "step 13 loss 2.0"], "inconclusive"),  # it was slow
    ],
)
def test_nobody_is_named_where_ranks_differ_or_steps_go_on(
    tmp_path: Path, lines: list[str], status: str
) -> None:
    assert blame(told(tmp_path, lines))[::2] == (status, ())


def test_the_few_that_submitted_another_tensor_are_a_guess(tmp_path: Path) -> None:
    stalled = (
        "Stalled ops: eval [ready ranks: 2], grad_1 [ready ranks: 0, 1, 3], grad_2 [ready ranks: 0, 1, 3]"
    )
    report = told(tmp_path, [HEAD, stalled])
    assert blame(report)[::2] == ("hang", (2,)) and level(report) == "low"


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
