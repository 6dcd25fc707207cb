"""A rank whose script is over while its process does not end."""

from __future__ import annotations

from pathlib import Path

from tests.dump_writer import SCRIPT
from tests.text_lines import told

PYTHON = "/usr/lib/python3.11"
AT_EXIT = [
    "Thread 0x00007f4b7d1296c0 (most recent call first):",
    f'  File "{SCRIPT}", line 25 in push',
    f'  File "{PYTHON}/threading.py", line 1045 in _bootstrap_inner',
    f'  File "{PYTHON}/threading.py", line 1002 in _bootstrap',
    "",
    "Current thread 0x00007f4b7d000000 (most recent call first):",
]
DONE = {f"rank_{rank}.log": ["epoch 2 step 20/20 loss 1.25", "bye"] for rank in range(3)}


def test_a_function_of_that_name_in_the_script_is_not_the_end(tmp_path: Path) -> None:
    own = [f'  File "{SCRIPT}", line 71 in close', f'  File "{SCRIPT}", line 72 in _shutdown']
    assert told(tmp_path, {**DONE, "stack_rank_2.txt": [*AT_EXIT, *own]}).status == "inconclusive"
