"""A backward pass that reduces other buckets than its peers'."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.dump_writer import Recorder, write_all
from tests.text_lines import short, timeout, told
from tests.verdicts import blame, said

STEPS = 12
RING = {"0": ("default_pg", range(4))}
BUCKETS = ([[4096]], [[2048]], [[1024]])


def backward(recorder: Recorder, buckets: int = 3, state: str = "completed") -> None:
    for sizes in BUCKETS[:buckets]:
        recorder.call("all_reduce", sizes=sizes, line=None, state=state)


@pytest.mark.parametrize("buckets", [1, 2])
def test_a_backward_that_ends_before_its_last_bucket(tmp_path: Path, buckets: int) -> None:
    """The pass had begun, so this is no rank that ran out of batches, although the metric ends each round."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            backward(recorder)
            recorder.call("all_reduce", sizes=[[2]], line=41, function="log_metrics")
        if recorder.rank == 1:
            backward(recorder, buckets)
            recorder.call("all_reduce", sizes=[[2]], line=41, function="log_metrics", state="started")
        else:
            backward(recorder, buckets)
            for sizes in BUCKETS[buckets:]:
                recorder.call("all_reduce", sizes=sizes, line=None, state="started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "gradient_sync_mismatch", (1,))
    assert report.verdict is not None and report.verdict.confidence == "high"


def test_a_call_by_hand_that_looks_like_a_bucket_is_no_bucket(tmp_path: Path) -> None:
    """It shifts all that follow, so buckets meet other buckets; but it was made by a line of the script."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(STEPS):
            backward(recorder)
        if recorder.rank == 3:
            recorder.call("all_reduce", sizes=BUCKETS[0], line=77, function="log_samples")
        recorder.call(
            "all_reduce", sizes=BUCKETS[0], line=None, state="completed" if recorder.rank != 3 else "started"
        )
        for sizes in (*BUCKETS[1:], *BUCKETS):
            recorder.call(
                "all_reduce", sizes=sizes, line=None, state="scheduled" if recorder.rank == 3 else "started"
            )
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (3,))
    assert report.verdict is not None and report.verdict.location is not None
    assert (report.verdict.location.line, report.verdict.location.function) == (77, "log_samples")


def test_ddp_itself_says_who_had_no_gradient(tmp_path: Path) -> None:
    finished = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. Parameter indices which did not receive grad for rank 1: 4 5"
    report = told(tmp_path, [f"[rank1]: {finished}", *(timeout(rank) for rank in (0, 2, 3))])
    assert short(report)[:2] == ("gradient_sync_mismatch", (1,))
    assert "index 4, index 5" in said(report)


def test_who_logs_several_steps_too_soon_left_out_no_backward(tmp_path: Path) -> None:
    """By the pattern whole steps lie before the metric: nobody skips those in a row, without a call, and then logs in time."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        for _ in range(2):
            for _ in range(10):
                backward(recorder, 2)
            recorder.call("all_gather", outputs=[[2]] * 4, line=41, function="log_metrics", times=2)
        for _ in range(7):
            backward(recorder, 2)
        if recorder.rank == 1:
            recorder.call("all_gather", outputs=[[2]] * 4, line=41, function="log_metrics", state="started")
        else:
            recorder.call("all_reduce", sizes=BUCKETS[0], line=None, state="started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,))
    assert "several steps early" in said(report)


def test_unused_parameters_of_the_one_rank_that_failed_while_the_launcher_ended_the_others(
    tmp_path: Path,
) -> None:
    lines = [
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one.",
        "Parameter indices which did not receive grad for rank 2: 394 395",
        *(
            f"WARNING:torch.distributed.elastic.multiprocessing.api:Sending process {p} closing signal SIGTERM"
            for p in (7, 8, 9)
        ),
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 2 (pid: 6) of binary: /opt/venv/bin/python",
    ]
    assert short(told(tmp_path / "a", lines)) == ("gradient_sync_mismatch", (2,), "medium")
    assert short(told(tmp_path / "b", lines[:2])) == ("gradient_sync_mismatch", (), "medium")
