"""A stop that a person reports, and that no line proves."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import told

STACKS = [
    "$ py-spy dump --pid 811     # LOCAL_RANK 0",
    'Thread 811 (active): "MainThread"',
    "    all_gather (torch/distributed/distributed_c10d.py:1185)",
    "    validate (main.py:243)",
    "    main_worker (main.py:171)",
    "$ py-spy dump --pid 813     (local_rank 2)",
    'Thread 813 (active): "MainThread"',
    "    all_gather (torch/distributed/distributed_c10d.py:1185)",
    "    validate (main.py:243)",
    "    main_worker (main.py:171)",
]


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param(
            ["My training hangs after the first epoch on both of my machines.", *STACKS],
            "hang",
            id="says so and shows where processes are",
        ),
        pytest.param(STACKS, "inconclusive", id="stacks without a word"),
        pytest.param(["I validate on the first GPU only, to save some time here.", *STACKS], "hang", id="took stacks"),
        pytest.param(
            ["My training hangs after the first epoch on both of my machines."], "inconclusive", id="a sentence alone"
        ),
        pytest.param(
            ["My training hangs from time to time, it is rather slow all in all.", *(f"step {n} loss 1.{n}" for n in range(9))],
            "inconclusive",
            id="steps that go on",
        ),
    ],
)  # fmt: skip
def test_a_reporter_who_shows_where_processes_are_reports_a_stop(
    tmp_path: Path, lines: list[str], status: str
) -> None:
    report = told(tmp_path, lines)
    assert report.status == status
    assert ("only the person who pasted the text" in report.to_text()) is (status == "hang")
