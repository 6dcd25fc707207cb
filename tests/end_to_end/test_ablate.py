"""What the switches of `benchmarks/ablate.py` find in one file of the core, on one set of the corpus."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow


def test_a_part_that_an_answer_rests_on_names_incidents_and_one_that_none_reaches_does_not() -> None:
    command = [sys.executable, "benchmarks/ablate.py", "--file", "hangscope/align/p2p.py", "--set", "partial"]
    run = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
    kinds = re.findall(r"^([a-z ]+): hangscope/align/p2p\.py:\d+: (.+?): (.*)$", run.stderr, re.M)
    needed = [incidents for kind, _, incidents in kinds if kind in ("needed", "one job")]
    assert needed and all("partial/" in incidents for incidents in needed)
    assert all(not incidents for kind, _, incidents in kinds if kind in ("never", "nothing"))
    row = re.search(r"^\| all \| (.+) \|$", run.stdout, re.M)
    assert row is not None
    parts, *counts = map(int, row[1].split(" | "))
    assert parts == len(kinds) == sum(counts)
