"""Loops that end on one rank while the others go on: which of them ran out, and which only seems so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.conftest import analyze
from tests.dump_writer import Recorder, job, write_all
from tests.simulator import Remains, collect, simulate
from tests.small_jobs import ODD_ONES, frozen
from tests.verdicts import blame, level

RING = {"0": ("default_pg", range(4))}


def epochs(recorder: Recorder, count: int = 2, steps: int = 6) -> None:
    for _ in range(count):
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=steps)
        recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average")


def test_who_says_that_an_epoch_is_over_that_was_over_for_all_did_not_run_out(tmp_path: Path) -> None:
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        epochs(recorder)
        rank, waits = recorder.rank, recorder.rank != 2
        if waits:
            recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started")
        lines = [f"[rank {rank}] epoch 1 step 6/6", f"[rank {rank}] epoch 1 finished"]
        lines += [f"[rank {rank}] epoch 2 step 1/6"] if waits else []
        (tmp_path / f"rank_{rank}.log").write_text("\n".join(lines) + "\n")
    write_all(recorders, tmp_path)
    assert blame(analyze(tmp_path)) == ("hang", "stuck_rank", (2,))


def test_the_call_that_all_have_just_made_once_more_is_no_end_of_an_epoch(tmp_path: Path) -> None:
    """A call too many, equal to the one that was due, was taken for it; since then the rank is one call behind."""
    recorders = [Recorder(rank, RING) for rank in range(4)]
    for recorder in recorders:
        epochs(recorder)
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=6)
        if recorder.rank == 1:
            recorder.call("all_reduce", sizes=[[3]], line=77, function="log_samples")
            recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average", state="started")
        else:
            recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average")
            recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "rank_conditional_collective", (1,))


@settings(max_examples=8)
@given(job_of=ODD_ONES)
def test_the_one_that_has_a_batch_less_in_its_last_epoch_is_named(job_of: tuple[int, int]) -> None:
    size, odd = job_of
    recorders = job(size)
    for recorder in recorders:
        epochs(recorder)
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=5)

    def last(recorder: Recorder, is_odd: bool) -> Recorder:
        if is_odd:
            return recorder.call(
                "all_reduce", sizes=[[3]], line=88, function="epoch_average", state="started"
            )
        return recorder.call(
            "all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started"
        )

    report = frozen(recorders, (odd,), last)
    assert blame(report) == ("hang", "uneven_loader", (odd,))
    assert level(report) == "low"  # a step that it skipped leaves the same calls


def test_own_output_of_the_same_step_leaves_an_epoch_that_ended_early_likely(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        epochs(recorder, count=3)
        is_odd = recorder.rank == 1
        recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", times=5)
        if is_odd:
            recorder.call("all_reduce", sizes=[[3]], line=88, function="epoch_average", state="started")
        else:
            recorder.call("all_reduce", sizes=[[512]], line=41, function="train_one_epoch", state="started")
        (tmp_path / f"rank_{recorder.rank}.log").write_text(f"[rank {recorder.rank}] epoch 3 step 5\n")
    write_all(recorders, tmp_path)
    report = analyze(tmp_path)
    assert blame(report) == ("hang", "uneven_loader", (1,)) and level(report) == "medium"


def test_its_own_word_that_an_epoch_is_over_outweighs_the_place_of_a_line(tmp_path: Path) -> None:
    """The function that ends the job is called above the lines that its loop uses; gradients come without a frame."""
    recorders = job(4)
    for recorder in recorders:
        log = [f"[rank {recorder.rank}] step {n}" for n in range(10)]
        for _ in range(10):
            recorder.call("all_reduce", sizes=[[512]], line=None).call("all_reduce", sizes=[[256]], line=None)
            recorder.call("all_reduce", sizes=[[3]], line=41).call("all_reduce", sizes=[[1]], line=47)
        if recorder.rank == 1:
            recorder.call("barrier", line=44, state="started")
            log.append("[rank 1] epoch 0 finished after 10 batches")
        else:
            recorder.call("all_reduce", sizes=[[512]], line=None, state="started")
        (tmp_path / f"rank_{recorder.rank}.log").write_text("\n".join(log) + "\n")
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "uneven_loader", (1,))


@pytest.mark.slow
def test_who_is_in_the_call_that_ends_an_epoch_left_out_no_gradient_reduction(tmp_path: Path) -> None:
    """The reductions of the step that it did not begin are missing as well; DDP's have no frames."""
    left = Remains(simulate("uneven_loader", 53000))
    for way, most in (("full", "high"), ("dumps only", "low")):
        folder = tmp_path / way
        folder.mkdir()
        left.write(folder, collect(left, way))
        report = analyze(folder)
        assert blame(report) == ("hang", "uneven_loader", (21,)) and level(report) == most


def test_a_call_that_ends_epochs_is_not_inside_the_loop_of_epochs_that_it_alone_shows(tmp_path: Path) -> None:
    """No call of a step has frames, so that the only line that repeats is the one behind the steps."""
    recorders = job(4)
    for recorder in recorders:
        recorder.call("broadcast", sizes=[[11]], line=59)
        for steps in (8, 8, 7):
            for _ in range(steps):
                recorder.call("all_reduce", sizes=[[512]], line=None).call(
                    "all_reduce", sizes=[[256]], line=None
                )
            if steps == 8:
                recorder.call("all_reduce", sizes=[[3]], line=65)
        if recorder.rank == 1:
            recorder.call("all_reduce", sizes=[[3]], line=65, state="started")
        else:
            recorder.call("all_reduce", sizes=[[512]], line=None, state="started")
    report = analyze(write_all(recorders, tmp_path))
    assert blame(report) == ("hang", "uneven_loader", (1,))


@pytest.mark.slow
def test_ranks_behind_the_loop_while_a_stage_waits_for_its_sends_have_left_it(tmp_path: Path) -> None:
    """A whole pipeline each had a batch less: their call is on another group than the receives of the others."""
    left = Remains(simulate("uneven_loader", 8))
    left.write(tmp_path, collect(left, "full"))
    report = analyze(tmp_path)
    assert report.verdict is not None and report.verdict.cause == "uneven_loader"


def test_of_two_that_part_at_the_end_of_a_loop_the_one_that_left_is_a_guess() -> None:
    """Which of them made a step too many or too few, the others of a larger group would show."""

    def last(recorder: Recorder, is_odd: bool) -> None:
        recorder.call("all_reduce", sizes=[[512]], line=41, function="decode", times=9)
        if is_odd:
            recorder.call("all_gather", outputs=[[8]] * 2, line=220, function="<module>", state="started")
            recorder.entries[-1]["frames"].pop()  # of the line that calls `decode`
        else:
            recorder.call("all_reduce", sizes=[[512]], line=None, state="started")

    for size, sure in ((2, ("low",)), (4, ("medium", "high"))):
        assert level(frozen(job(size), (1,), last)) in sure


def test_who_counts_a_step_in_the_middle_of_its_loop_has_not_left_it(tmp_path: Path) -> None:
    """An extra barrier behind the last line of the loop, made in the middle of an epoch."""
    left = Remains(simulate("extra_call", 1))
    left.write(tmp_path, collect(left, "full"))
    assert blame(analyze(tmp_path)) == ("hang", "rank_conditional_collective", tuple(left.job.truth.culprits))
