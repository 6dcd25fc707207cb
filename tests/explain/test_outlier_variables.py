"""Variables that stacks show: one rank with another value than all others, and what a wait in C++ waits for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.verdicts import blame, said

_STACK = """Process {pid}: python run_pp.py
Python v3.11.7 (/opt/venv/bin/python3.11)

Thread {pid} (idle): "MainThread"
    Stage.exchange (schedule.py:34)
        Locals:
            ops: [<P2POp at 0x7fbb27349a90>]
            w: <torch._C._distributed_c10d.Work at 0x7fbb273497b0>
    Stage.run (schedule.py:{line})
        Locals:
            {name}: {value}
            i: {rank}
    main (run_pp.py:39)
"""


def _stacks(folder: Path, values: list[object], name: str = "m") -> Path:
    for rank, value in enumerate(values):
        text = _STACK.format(pid=300 + rank, line=60 + rank, name=name, value=value, rank=rank)
        (folder / f"{rank}.txt").write_text(text)
    return folder


def test_a_size_that_one_rank_alone_has_names_it(tmp_path: Path) -> None:
    report = analyze(_stacks(tmp_path, [5, 5, 4, 5]))
    assert blame(report) == ("hang", "p2p_mismatch", (2,))
    assert "rank 2's stack has another value than 5, which all others have: m = 4 in run" in said(report)


@pytest.mark.parametrize(
    ("values", "name"), [([5, 5, 5, 5], "m"), ([5, 5, 4, 3], "m"), ([5, 5, 4, 4], "m"), ([5, 5, 4, 5], "micro_step"), ([5, 5, 4, 5], "k"), (["<T at 0x1>", "<T at 0x1>", "<T at 0x1>", None], "m")],
)  # fmt: skip
def test_what_counts_or_follows_from_the_rank_names_nobody(
    values: list[object], name: str, tmp_path: Path
) -> None:
    assert blame(analyze(_stacks(tmp_path, values, name)))[2] == ()
