"""Where ranks stood by their stacks: in a collective, also in one that torch makes from C++, or at work."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import short, told
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


def test_who_builds_something_under_such_a_name_of_the_users_is_at_work(tmp_path: Path) -> None:
    inside = [f'  File "{SCRIPT}", line 9 in _sync_params_and_buffers', f'  File "{SCRIPT}", line 84 in main']
    assert short(told(tmp_path, _stacks(inside)))[:2] == ("stuck_rank", (0,))
