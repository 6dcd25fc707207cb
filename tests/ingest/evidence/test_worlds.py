"""Jobs that ran side by side, such as a trainer and its rollout workers, are kept apart."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hangscope.api import Report
from tests.conftest import analyze
from tests.dump_writer import Recorder, job, stuck, write_all


def moved(recorders: list[Recorder], seconds: float) -> list[Recorder]:
    """Return the recorders with all their calls made that much later."""
    for recorder in recorders:
        for entry in recorder.entries:
            for key, value in entry.items():
                if key.startswith("time_") and value:
                    entry[key] = value + int(seconds * 1e9)
    return recorders


def rollout(size: int, *, seconds: float = 0.053217) -> list[Recorder]:
    """Return healthy workers that broadcast weights, a little later than a trainer."""
    recorders = job(size)
    for recorder in recorders:
        recorder.call("broadcast", sizes=[[4096]], line=12, times=40)
    return moved(recorders, seconds)


def told(report: Report) -> str:
    return " ".join(w.message for w in report.warnings if w.code == "several_worlds")


@pytest.mark.parametrize("size", [2, 4, 8])
def test_the_trainer_that_froze_is_analysed_without_the_rollout_workers(tmp_path: Path, size: int) -> None:
    write_all(stuck(4, culprit=2), tmp_path / "trainer")
    write_all(rollout(size), tmp_path / "rollout")
    report = analyze(tmp_path)
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("stuck_rank", (2,))
    assert report.verdict.waiting_ranks == (0, 1, 3)
    assert told(report).endswith(
        f"rollout/ ({size} ranks, no_hang); trainer/ (4 ranks, hang). trainer/ is analysed"
    )
    assert not [w for w in report.warnings if w.code in ("two_files_one_rank", "stale")]


def test_the_rollout_workers_that_froze_are_analysed_without_the_trainer(tmp_path: Path) -> None:
    write_all(moved(stuck(4, culprit=1, steps=20), 0.053217), tmp_path / "actors" / "dumps")
    write_all(rollout(4, seconds=0), tmp_path / "learner" / "dumps")
    report = analyze(tmp_path)
    assert report.verdict is not None
    assert report.verdict.culprit_ranks == (1,)
    assert "actors/ is analysed" in told(report)


def test_logs_go_with_the_world_of_their_folder(tmp_path: Path) -> None:
    write_all(stuck(4, culprit=2), tmp_path / "trainer")
    write_all(rollout(4), tmp_path / "rollout")
    for folder in ("trainer", "rollout"):
        for rank in range(4):
            (tmp_path / folder / f"rank{rank}.out").write_text(f"{folder} step 3 done\n")
    (tmp_path / "driver.log").write_text("[rank1]: ValueError: of whichever of the two\n")
    report = analyze(tmp_path)
    assert report.verdict is not None and report.verdict.culprit_ranks == (2,)
    files = [row["file"] for row in json.loads(report.to_json())["inputs"]]
    assert len(files) == 8 and all(file.startswith("trainer/") for file in files)


def test_two_snapshots_of_one_job_are_one_world(tmp_path: Path) -> None:
    write_all(stuck(4, culprit=2), tmp_path / "capture_01")
    write_all(stuck(4, culprit=2), tmp_path / "capture_02")
    report = analyze(tmp_path)
    assert told(report) == "" and report.verdict is not None
    assert report.verdict.culprit_ranks == (2,)
    assert not report.warnings


def test_an_earlier_job_is_no_world_beside(tmp_path: Path) -> None:
    write_all(moved(stuck(2, culprit=1), -9000), tmp_path / "old")
    write_all(stuck(4, culprit=2), tmp_path / "new")
    report = analyze(tmp_path)
    assert told(report) == "" and report.verdict is not None
    assert report.verdict.culprit_ranks == (2,)


def test_the_nodes_of_one_job_are_one_world(tmp_path: Path) -> None:
    recorders = stuck(8, culprit=2)
    write_all(recorders[:4], tmp_path / "node0")
    write_all(recorders[4:], tmp_path / "node1")
    report = analyze(tmp_path)
    assert told(report) == "" and report.verdict is not None
    assert (report.verdict.culprit_ranks, len(report.verdict.waiting_ranks)) == ((2,), 7)


def test_two_recorders_of_one_process_are_one_world(tmp_path: Path) -> None:
    write_all(stuck(4, culprit=2), tmp_path / "nccl")
    side = job(4, backend="gloo")
    for recorder in side:
        recorder.call("barrier", times=4)
    write_all(moved(side, 0.003), tmp_path / "gloo")
    assert told(analyze(tmp_path)) == ""
