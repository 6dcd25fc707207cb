"""A job that was ended after it froze is told from one that was ended while it moved."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import EPOCH_NS, STEP_NS, Recorder, world
from tests.text_lines import short

LAST = EPOCH_NS // 10**9


def _job(
    folder: Path, seconds: float, zone: timedelta = timedelta(0), behind: tuple[int, ...] = (2,)
) -> Path:
    """Write four ranks, of which `behind` did not make the last call, and an end `seconds` behind it in some time zone."""
    for rank in range(4):
        recorder = Recorder(rank, world(4)).call("all_reduce", times=20)
        if rank not in behind:
            recorder.call("all_reduce", state="scheduled")
        recorder.write(folder)
    end = datetime.fromtimestamp(LAST + 20 * STEP_NS / 1e9 + seconds, timezone.utc) + zone
    line = f"slurmstepd: error: *** JOB 12 ON gpu07 CANCELLED AT {end:%Y-%m-%dT%H:%M:%S} ***\n"
    (folder / "slurm.out").write_text(line)
    return folder


@pytest.mark.parametrize(
    "zone", [timedelta(0), timedelta(hours=2), timedelta(hours=-5), timedelta(minutes=345)]
)
def test_a_minute_without_a_call_is_the_freeze_and_not_the_ending(tmp_path: Path, zone: timedelta) -> None:
    assert short(analyze(_job(tmp_path, 60, zone)))[:2] == ("stuck_rank", (2,))


@pytest.mark.parametrize("seconds", [894, 905, 1210])
def test_no_time_zone_is_a_quarter_of_an_hour_from_utc(tmp_path: Path, seconds: float) -> None:
    assert short(analyze(_job(tmp_path, seconds)))[:2] == ("stuck_rank", (2,))


@pytest.mark.parametrize("zone", [timedelta(0), timedelta(hours=2)])
def test_a_job_that_moved_until_it_was_ended_accuses_nobody(tmp_path: Path, zone: timedelta) -> None:
    verdict = analyze(_job(tmp_path, 2, zone)).verdict
    assert verdict is not None
    assert (verdict.cause, verdict.culprit_ranks, verdict.category) == ("crashed_rank", (), "external")


def test_seconds_without_a_call_are_a_freeze_where_a_job_made_hundreds_in_that_time(tmp_path: Path) -> None:
    assert short(analyze(_job(tmp_path, 8)))[:2] == ("stuck_rank", (2,))


def test_one_rank_that_is_a_call_ahead_of_all_others_long_before_the_end_accuses_nobody(
    tmp_path: Path,
) -> None:
    assert short(analyze(_job(tmp_path, 13, behind=(1, 2, 3)))) == ("crashed_rank", (), "low")


@pytest.mark.parametrize(
    "last", ["2026-11-20 09:02:22,120 INFO [rank0] step 40 loss 0.7", "[rank0] step 40 loss 0.7"]
)
def test_that_a_job_moved_until_it_was_ended_is_not_sure_without_a_dump(tmp_path: Path, last: str) -> None:
    end = "W1120 09:13:24.653000 17250 torch/distributed/elastic/agent/server/api.py:753] Received 15 death signal, shutting down workers"
    (tmp_path / "job.log").write_text(f"[rank1] step 40 loss 0.6\n{last}\n{end}\n")
    report = analyze(tmp_path)
    assert report.status == "hang" and report.verdict is not None
    assert (report.verdict.cause, report.verdict.category) == ("crashed_rank", "external")
    assert report.verdict.confidence == "low"
    assert [other.cause for other in report.verdict.alternatives] == ["unknown"]
