"""Dumps of an earlier attempt are set aside, and those of a host whose clock is minutes behind are not."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.small_jobs import due
from tests.verdicts import culprits

STEPS = 60
MS = 1_000_000


def timed(recorder: Recorder, random: Random, steps: list[int], behind: int) -> None:
    """Give a recorder's calls the times at which all made them, by a clock that is `behind` ns late, and some jitter of its own."""
    at = 0
    for entry, step in zip(recorder.entries, steps, strict=False):
        at += step
        moved = at - behind + random.randrange(2 * MS) - int(entry["time_created_ns"]) + 10**18
        for key, value in entry.items():
            if key.startswith("time_") and value:
                entry[key] = value + moved


@pytest.mark.parametrize(("same_run", "stale"), [(True, False), (False, True)])
def test_a_clock_that_is_three_minutes_behind_makes_no_dump_an_earlier_one(
    tmp_path: Path, same_run: bool, stale: bool
) -> None:
    random, recorders = Random(7), job(4)
    paces = [[random.randrange(20 * MS, 30 * MS) for _ in range(2 * STEPS)] for _ in range(2)]
    for recorder in recorders:
        odd = recorder.rank == 3
        for _ in range(STEPS - 1):
            due(recorder, "completed")
        if not odd:
            due(recorder)
        timed(recorder, random, paces[int(odd and not same_run)], 180 * 10**9 if odd else 0)
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert any(note.code == "stale" for note in report.warnings) is stale
    assert culprits(report) == (3,)
