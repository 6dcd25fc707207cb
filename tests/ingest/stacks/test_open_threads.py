"""Which thread of a process is the one that trains."""

from __future__ import annotations

import io

import pytest

from hangscope.ingest.stacks.dumps import read_processes

MAIN = """Thread 0x00007f4b9c884b80 (most recent call first):
  File "/opt/venv/ray/_private/worker.py", line 1021 in main_loop
  File "/opt/venv/ray/_private/workers/default_worker.py", line 330 in <module>
"""
TRAINS = """Thread 0x00007f4b8affd6c0 (most recent call first):
  File "train.py", line 9 in train_function
  File "/opt/venv/ray/{}", line 40 in {}
  File "/usr/lib/python3.11/threading.py", line 982 in run
  File "/usr/lib/python3.11/threading.py", line 1045 in _bootstrap_inner
  File "/usr/lib/python3.11/threading.py", line 1002 in _bootstrap

"""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("train/v2/_internal/execution/worker_group/thread_runner.py", "_run_target"),
        ("air/_internal/util.py", "run"),
    ],
)
def test_the_thread_that_ray_trains_in_counts_as_the_main_one(file: str, name: str) -> None:
    text = TRAINS.format(file, name) + MAIN
    (process,) = read_processes(io.BytesIO(text.encode()), "stack_rank_0.txt")
    _, stack, is_main = process.threads[0]
    assert is_main and (stack[0].file, stack[0].line) == ("train.py", 9)
    assert [main for _, _, main in process.threads] == [True, False]
