"""At which lines ranks stand by stacks of one moment: what they prove of a job that may be moving, and what not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import short, told
from tests.verdicts import TIMED_OUT

HEAD = "Current thread 0x00007f4b7d1296c0 (most recent call first):"


def _in(op: str, line: int) -> list[str]:
    return [
        HEAD,
        f'  File "{TORCH}/distributed/distributed_c10d.py", line 4394 in {op}',
        f'  File "{SCRIPT}", line {line} in main',
    ]


def _stacks(odd: list[str], others: list[str]) -> dict[str, str | list[str]]:
    return {f"stack_rank_{r}.txt": odd if r == 2 else others for r in range(3)}


def test_calls_of_one_operation_at_two_lines_of_a_loop_prove_no_freeze(tmp_path: Path) -> None:
    """A moving job shows the like: its ranks are asked one after the other, and the calls would meet."""
    files = _stacks(_in("all_gather_into_tensor", 31), _in("all_gather_into_tensor", 30))
    report = told(tmp_path, files)
    assert report.status == "inconclusive" and report.verdict is None


def test_the_same_stacks_with_a_timeout_are_of_a_frozen_job(tmp_path: Path) -> None:
    files = _stacks(_in("all_gather_into_tensor", 31), _in("all_gather_into_tensor", 30))
    files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), "medium")


@pytest.mark.parametrize(("ended", "level"), [(False, "low"), (True, "medium")])
def test_calls_of_two_operations_do_not_meet_and_are_a_guess_of_one_moment(
    tmp_path: Path, ended: bool, level: str
) -> None:
    files = _stacks(_in("broadcast", 31), _in("all_gather_into_tensor", 30))
    if ended:
        files["job.log"] = [f"[rank{rank}]: {TIMED_OUT}" for rank in range(3)]
    assert short(told(tmp_path, files)) == ("rank_conditional_collective", (2,), level)


def test_sends_and_receives_of_one_moment_are_a_guess(tmp_path: Path) -> None:
    assert short(told(tmp_path, _stacks(_in("send", 31), _in("recv", 30)))) == ("p2p_mismatch", (), "low")
