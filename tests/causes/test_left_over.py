"""A rank whose script is over while its process does not end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dump_writer import SCRIPT, TORCH, job
from tests.text_lines import short, told

PYTHON = "/usr/lib/python3.11"
AT_EXIT = [
    "Thread 0x00007f4b7d1296c0 (most recent call first):",
    f'  File "{SCRIPT}", line 25 in push',
    f'  File "{PYTHON}/threading.py", line 1045 in _bootstrap_inner',
    f'  File "{PYTHON}/threading.py", line 1002 in _bootstrap',
    "",
    "Current thread 0x00007f4b7d000000 (most recent call first):",
]
SHUTDOWN = f'  File "{PYTHON}/threading.py", line 1590 in _shutdown'
WAITS = [
    "Current thread 0x00007f4b7d000000 (most recent call first):",
    f'  File "{TORCH}/distributed/distributed_c10d.py", line 3252 in all_reduce',
    f'  File "{SCRIPT}", line 41 in train',
]
DONE = {f"rank_{rank}.log": ["epoch 2 step 20/20 loss 1.25", "bye"] for rank in range(3)}


@pytest.mark.parametrize(
    "frame", [SHUTDOWN, f'  File "{PYTHON}/multiprocessing/util.py", line 357 in _exit_function']
)
def test_a_thread_that_keeps_a_process_whose_script_is_over_is_where_it_is_stuck(
    tmp_path: Path, frame: str
) -> None:
    report = told(tmp_path, {**DONE, "stack_rank_2.txt": [*AT_EXIT, frame]})
    assert short(report) == ("stuck_rank", (2,), "low")
    assert report.verdict is not None and report.verdict.location is not None
    assert (report.verdict.location.line, report.verdict.location.function) == (25, "push")


def test_a_function_of_that_name_in_the_script_is_not_the_end(tmp_path: Path) -> None:
    own = [f'  File "{SCRIPT}", line 71 in close', f'  File "{SCRIPT}", line 72 in _shutdown']
    assert told(tmp_path, {**DONE, "stack_rank_2.txt": [*AT_EXIT, *own]}).status == "inconclusive"


def test_who_is_at_its_exit_while_the_others_are_in_a_call_left_early(tmp_path: Path) -> None:
    stacks = {f"stack_rank_{rank}.txt": [*AT_EXIT, SHUTDOWN] if rank == 1 else WAITS for rank in range(3)}
    assert short(told(tmp_path, stacks))[:2] == ("early_exit", (1,))


def test_the_dumps_of_the_others_may_tell_of_the_call(tmp_path: Path) -> None:
    for recorder in job(3):
        recorder.call("all_reduce", times=9, line=41)
        if recorder.rank != 1:
            recorder.call("all_reduce", line=41, state="started")
        recorder.write(tmp_path)
    report = told(tmp_path, {"stack_rank_1.txt": [*AT_EXIT, SHUTDOWN]})
    assert short(report)[:2] == ("early_exit", (1,))
