"""Ranks that ended without an error while others still called, and ranks that only came late."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings

from tests.dump_writer import Recorder, job
from tests.small_jobs import ODD_ONES, due, frozen, loop
from tests.text_lines import CLOSED, short, timeout, told
from tests.verdicts import blame, judged, level, said

LAST = 25  # the number of the call behind twelve rounds of two


def gave_up(size: int, odd: int) -> dict[str, list[str]]:
    """Return the logs of ranks that waited until their watchdogs gave up."""
    return {f"rank{rank}": [timeout(rank, seq=LAST)] for rank in range(size) if rank != odd}


@settings(max_examples=6)
@given(job_of=ODD_ONES)
def test_a_rank_whose_process_ended_well_left_the_others(job_of: tuple[int, int]) -> None:
    size, odd = job_of
    logs = {**gave_up(size, odd), f"rank{odd}": [f"[rank{odd}]: Process 77 exits successfully"]}
    report = frozen(loop(size), (odd,), lambda r, is_odd: None if is_odd else due(r), **logs)
    assert blame(report) == ("hang", "early_exit", (odd,))


@settings(max_examples=6)
@given(job_of=ODD_ONES)
def test_a_call_that_was_completed_after_all_froze_nothing(job_of: tuple[int, int]) -> None:
    """The watchdogs gave up, the dumps show the call complete: the one that did not give up was late."""
    size, odd = job_of
    logs = {**gave_up(size, odd), f"rank{odd}": [f"[rank{odd}]: step 12"]}
    report = frozen(loop(size), (), lambda r, is_odd: due(r, "completed"), **logs)
    assert blame(report) == ("no_hang", "slow_rank", (odd,))


@pytest.mark.parametrize("word", ["all prompts done", "all 17 batches processed", "bye"])
def test_a_silent_rank_whose_last_word_is_that_all_is_over_left_early(tmp_path: Path, word: str) -> None:
    report = told(tmp_path, {**gave_up(4, 2), "rank2.log": [f"[rank2]: {word}"]}, world_size=4)
    assert blame(report) == ("hang", "early_exit", (2,)) and level(report) == "medium"


def test_of_a_rank_whose_log_is_not_here_it_is_not_said_that_it_was_late() -> None:
    report = frozen(loop(4), (), lambda r, is_odd: due(r, "completed"), **gave_up(4, 2))
    assert blame(report)[2] == () and level(report) != "high"


@settings(max_examples=4)
@given(job_of=ODD_ONES)
def test_where_all_calls_are_over_and_nobody_complains_nothing_hangs(job_of: tuple[int, int]) -> None:
    report = frozen(loop(job_of[0]), (), lambda r, is_odd: due(r, "completed"))
    assert blame(report) == ("no_hang", None, ())


def test_a_task_that_srun_does_not_name_may_run_still(tmp_path: Path) -> None:
    """srun tells of each task as it ends; that it names all but one is no table of failures."""
    lines = [timeout(rank, seq=LAST) for rank in (0, 1, 3)]
    lines += [f"srun: error: gpu0{rank // 2}: task {rank}: Aborted (core dumped)" for rank in (0, 1, 3)]
    report = told(tmp_path, lines, world_size=4)
    assert report.verdict is not None and report.verdict.cause != "early_exit"


def test_a_task_that_srun_does_not_name_and_that_alone_left_no_dump_is_gone(tmp_path: Path) -> None:
    recorders = job(4)
    for recorder in recorders:
        recorder.call("all_reduce", times=12, line=41).call("all_reduce", line=41, state="started")
    ended = [f"srun: error: gpu0{rank // 2}: task {rank}: Aborted (core dumped)" for rank in (0, 1, 3)]
    report = judged(tmp_path, [recorder for recorder in recorders if recorder.rank != 2], slurm=ended)
    assert blame(report) == ("hang", "early_exit", (2,)) and level(report) == "medium"


CANCELLED = "slurmstepd: error: *** STEP 12.0 ON gpu00 CANCELLED AT 2026-11-20T15:13:24 ***"


@pytest.mark.parametrize(
    ("task", "ended"),
    [
        ("Out Of Memory", "out-of-memory killer"),
        ("Exited with exit code 1", "exit code 1"),
        ("Terminated", "cancelled"),
    ],
)
def test_a_step_that_srun_ends_after_a_task_failed_was_not_cancelled(
    tmp_path: Path, task: str, ended: str
) -> None:
    lines = ["step 41", f"srun: error: gpu02: task 2: {task}", "srun: Terminating StepId=12.0", CANCELLED]
    report = told(tmp_path, lines)
    assert report.verdict is not None and ended in report.verdict.summary
    assert (report.verdict.category == "external") == (task == "Terminated")


def test_tasks_that_end_behind_a_cancellation_are_ended_by_it(tmp_path: Path) -> None:
    report = told(tmp_path, ["step 41", CANCELLED, "srun: error: gpu02: task 2: Exited with exit code 1"])
    assert report.verdict is not None and report.verdict.category == "external"


@pytest.mark.parametrize("alone", [True, False])
def test_what_all_ranks_say_of_a_step_accuses_none_of_them(tmp_path: Path, alone: bool) -> None:
    """A bar with a loss that is no number is no word of one that left a step out, if its peers print the same."""

    def log(rank: int) -> list[str]:
        bar = f"rank {rank} epoch 0: 40it [00:{14 if rank == 1 else 0:02}, {2 if rank == 1 else 57.4:5}it/s, loss={'nan' if rank == 1 or not alone else 0.5}]"
        name, line = ("backward", 43) if rank == 1 else ("barrier", 47)
        call = f"/opt/venv/lib/python3.11/site-packages/torch/{'_tensor' if rank == 1 else 'distributed/distributed_c10d'}.py"
        frames = [f'  File "/u/train.py", line {line}, in main', f'  File "{call}", line 7, in {name}']
        error = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 14000ms for recv operation to complete"
        return [bar, *(f"[rank{rank}]: {t}" for t in ("Traceback (most recent call last):", *frames, error))]

    report = told(tmp_path, {f"rank{rank}.log": log(rank) for rank in range(4)})
    assert ("only rank 1 printed this" in report.to_text()) is alone


def test_where_several_gave_no_word_who_came_late_is_a_guess() -> None:
    logs = gave_up(6, 5)
    del logs["rank1"], logs["rank2"]
    report = frozen(loop(6), (), lambda r, is_odd: due(r, "completed"), **logs)
    assert blame(report) == ("no_hang", "slow_rank", ())
    assert level(report) == "low"


def test_steps_that_are_counted_behind_a_timeout_show_that_its_call_was_completed(tmp_path: Path) -> None:
    recorders = loop(4)
    logs = gave_up(4, 2)
    for recorder in recorders:
        if recorder.rank != 2:
            due(recorder)
    assert level(judged(tmp_path / "frozen", recorders, **logs)) == "high"
    went_on = {name: [*lines, f"[{name}]: step 13 loss 2.1"] for name, lines in logs.items()}
    report = judged(tmp_path / "late", recorders, **went_on)
    assert (blame(report)[1:], level(report)) == (("stuck_rank", (2,)), "low")


def test_who_is_killed_in_the_same_moment_as_those_that_waited_died_of_nothing_of_its_own(
    tmp_path: Path,
) -> None:
    """An operator kills all of a frozen job; the table puts another rank's root cause below."""
    recorders = job(3)
    for recorder in recorders:
        recorder.call("all_reduce", sizes=[[64]], line=20, times=6)
        if recorder.rank == 1:
            recorder.call("all_gather", sizes=[[1]], line=31, state="started")
        else:
            recorder.call("all_reduce", sizes=[[64]], line=20, state="started")
    table = ["train.py FAILED", "-" * 40, "Failures:"]
    for number, rank in enumerate((1, 2, 0)):
        table += ["Root Cause (first observed failure):"] if number == 2 else []
        table += [f"[{number}]:", "  time      : 2026-11-20_10:44:00", "  host      : gpu01"]
        table += [
            f"  rank      : {rank} (local_rank: {rank})",
            f"  exitcode  : -9 (pid: {900 + rank})",
            "  error_file: <N/A>",
        ]
        table += [f"  traceback : Signal 9 (SIGKILL) received by PID {900 + rank}"]
    report = judged(tmp_path, recorders, launcher=[*table, "=" * 40])
    assert blame(report)[2] == (1,) and blame(report)[1] != "crashed_rank"


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        ("rank 2: caught signal 15, saving and leaving", "early_exit"),
        ("rank 2: epoch 3 saved", "crashed_rank"),
    ],
)
def test_who_says_that_it_leaves_before_its_peers_lose_it_left(
    tmp_path: Path, words: str, cause: str
) -> None:
    logs = {f"pod-{rank}.log": [f"[rank{rank}]: {CLOSED}"] for rank in (0, 1)}
    report = told(tmp_path / "ended", {**logs, "pod-2.log": ["step 3", words]})
    assert blame(report) == ("hang", cause, (2,))
    stack = [
        "Process 71: python -u work.py",
        "",
        'Thread 71 (idle): "MainThread"',
        "    <module> (work.py:12)",
    ]
    report = told(tmp_path / "alive", {**logs, "pod-2.log": ["step 3", words], "pyspy_rank2.txt": stack})
    assert blame(report) == ("hang", cause if cause == "early_exit" else "stuck_rank", (2,))


TIMED_OUT = "RuntimeError: [/x/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 9000ms for recv operation to complete"


def test_an_idle_rank_whose_peers_timed_out_is_alive() -> None:
    logs = {f"rank{rank}": [f"[rank{rank}]: {TIMED_OUT}"] for rank in (0, 1, 3)}
    report = frozen(loop(4), (2,), lambda r, odd: None if odd else due(r), rank2=["step 12"], **logs)
    assert short(report) == ("stuck_rank", (2,), "high")


def test_where_as_many_ended_well_as_failed_nobody_left_early(tmp_path: Path) -> None:
    """A table that lists half of the ranks says of the others only that it does not list them."""
    for listed, named in (((0, 1, 3), (2,)), ((1, 3), ())):
        rows = [text for rank in listed for text in (f"[{rank}]:", f"  rank      : {rank} (local_rank: {rank})", f"  exitcode  : 1 (pid: {30 + rank})", "  error_file: <N/A>")]  # fmt: skip
        lines = [f"[rank{rank}]: {CLOSED}" for rank in listed]
        table = ["=" * 60, "train.py FAILED", "-" * 60, "Failures:", *rows, "=" * 60]
        report = told(tmp_path / str(len(listed)), [*lines, *table], world_size=4)
        assert (report.verdict.culprit_ranks if report.verdict else ()) == named


BAR = "Map:  48%|####8     | 5301221/11000000 [30:00<32:30, 2921.4 examples/s]"
STEPS = "train:  48%|####8     | 480/1000 [30:00<32:30,  1.41s/it]"


def test_a_rank_that_came_long_after_all_others_was_slow_where_nothing_hangs() -> None:
    recorders = loop(4)
    for recorder in recorders:
        recorder.time_ns += 60 * 10**9 if recorder.rank == 2 else 0
    report = frozen(recorders, (), lambda r, is_odd: due(r, "completed"))
    assert blame(report) == ("no_hang", "slow_rank", (2,)) and "60 s after all other members" in said(report)


def test_several_tasks_that_were_aborted_are_victims(tmp_path: Path) -> None:
    lines = [f"srun: error: gpu01: task {rank}: Aborted (core dumped)" for rank in (0, 1)]
    assert blame(told(tmp_path, {"slurm.out": lines}, world_size=4))[2] == ()


def test_the_exits_that_an_own_launcher_prints_count(tmp_path: Path) -> None:
    launcher = ["task 3: exit code 0", *(f"task {rank}: exit code 1" for rank in (2, 0, 1))]
    logs = {f"rank{rank}": ["step 5", f"[rank{rank}]: {CLOSED}"] for rank in range(3)}
    assert blame(judged(tmp_path, [], launcher=launcher, **logs)) == ("hang", "early_exit", (3,))


def paused(late: int) -> list[Recorder]:
    """Return the recorders of three ranks of which one has not come to a call that they made again and again."""
    recorders = [recorder.call("all_gather", line=20, times=5) for recorder in job(3, backend="gloo")]
    return [r if r.rank == late else r.call("all_gather", line=20, state="scheduled") for r in recorders]


def test_dumps_of_a_job_all_of_whose_processes_ended_with_code_0_are_of_a_pause(tmp_path: Path) -> None:
    recorders = paused(0)
    launcher = [f"[launch] rank {rank} (pid {15 + rank}) exited with code 0" for rank in range(3)]
    assert judged(tmp_path, recorders, launch=launcher).status == "no_hang"
    assert judged(tmp_path, recorders, launch=launcher[:1]).status == "hang"
    assert judged(tmp_path, recorders, launch=["all workers ended, rc 0"]).status == "no_hang"


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGABRT"])
def test_what_the_parent_of_spawned_processes_numbers_is_a_rank_of_its_console(
    tmp_path: Path, signal: str
) -> None:
    printed = [
        f"[expert {n}] step {step} loss 2.{n}"
        for step, order in enumerate(("2031", "3102", "1230"))
        for n in order
    ]
    ended = f"torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal {signal}"
    gloo = ["what():  [enforce fail at pair.cc:456] op.preamble.length <= op.nbytes. 8 vs 4. "] * (
        signal == "SIGABRT"
    )
    verdict = judged(tmp_path, [], moe=[*printed, *gloo, ended]).verdict
    assert verdict is not None
    assert verdict.culprit_ranks == ((2,) if signal == "SIGKILL" else ())  # gloo aborts who receives


def test_a_job_whose_ranks_all_finish_after_their_dumps_does_not_hang(tmp_path: Path) -> None:
    """The log has a clock and no date."""
    recorders = paused(1)
    newest = max(entry["time_created_ns"] for recorder in recorders for entry in recorder.entries) // 10**9
    clock = time.strftime("%H:%M:%S", time.gmtime(newest + 11))
    printed = [
        f"[{clock}.100][worker {n}][I] round {step}"
        for step, order in enumerate(("210", "021", "102"))
        for n in order
    ]
    ends = [f"[{clock}.526][worker {n}][I] evaluation finished" for n in (1, 2, 0)]
    assert judged(tmp_path, recorders, eval=[*printed, *ends]).status == "no_hang"
