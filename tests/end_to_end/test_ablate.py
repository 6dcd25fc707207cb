"""What the switches of `benchmarks/ablate.py` find in one file of the core."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


ROOT = Path(__file__).resolve().parents[2]


def test_a_function_that_a_test_needs_is_missed_and_one_that_no_test_runs_is_not() -> None:
    command = [sys.executable, "benchmarks/ablate.py", "--file", "hangscope/align/sequence_diff.py"]
    options = ["--per-fault", "0", "--incidents", "0", "--jobs", "1", "--tests"]
    told = subprocess.run(
        [*command, *options, "tests/align/test_sequence_diff.py"],
        cwd=ROOT, check=True, capture_output=True, text=True, timeout=300,
    ).stdout  # fmt: skip
    counts = re.search(
        r"(\d+) branches and functions, 0 incidents, (\d+) tests: 0 .* (\d+) by tests .* (\d+) by nothing",
        told,
    )
    assert counts is not None
    switches, tests, missed, spare = map(int, counts.groups())
    assert tests > 5 and missed > 5 and switches == missed + spare
    assert "def first_edit" not in told and "def continues" not in told
    unmissed = re.findall(r"^hangscope/align/sequence_diff\.py:\d+: (?:if|def) ", told, re.M)
    assert len(unmissed) == spare
