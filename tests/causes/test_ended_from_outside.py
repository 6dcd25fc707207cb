"""Jobs that somebody or something ended: what had frozen before, and what only its own scheduler ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.text_lines import judged, short, told
from tests.verdicts import level

LOOP = "    train (train.py:31)\n    <module> (train.py:40)\n"
NATIVE = "    step (train.py:22)\n" + LOOP
READING = "    read (/usr/lib/python3.11/ssl.py:1163)\n    step (train.py:18)\n" + LOOP
INSIDE = "    all_reduce (torch/distributed/distributed_c10d.py:2810)\n    step (train.py:22)\n" + LOOP
CANCELLED = "slurmstepd: error: *** STEP 7.0 ON gpu01 CANCELLED AT 2026-03-02T{at} ***"


def _job(folder: Path, at: str, stacks: dict[int, str], steps: int = 30) -> Path:
    """Write the log of a job that makes a step a second until 10:00, its end, and what py-spy saw."""
    lines = [f"2026-03-02 09:59:{60 - steps + n} - INFO - step {n} | loss 2.5" for n in range(steps)]
    (folder / "slurm.out").write_text("\n".join([*lines, CANCELLED.format(at=at), ""]))
    for rank, stack in stacks.items():
        text = f'Process {500 + rank}: python3 -u train.py\nPython v3.11.7\n\nThread {500 + rank} (idle): "MainThread"\n{stack}'
        (folder / f"stack_rank{rank}.txt").write_text(text)
    return folder


@pytest.mark.parametrize("stacks", [{}, dict.fromkeys(range(4), NATIVE)])
def test_a_job_that_counted_steps_until_its_end_was_ended(tmp_path: Path, stacks: dict[int, str]) -> None:
    report = analyze(_job(tmp_path, "10:00:01", stacks))
    assert short(report)[:2] == ("crashed_rank", ()) and level(report) == "high"


def test_half_an_hour_without_a_step_is_not_surely_an_end_from_outside(tmp_path: Path) -> None:
    assert level(analyze(_job(tmp_path, "10:31:00", {}))) == "low"


@pytest.mark.parametrize(
    ("at", "cause"),
    [
        ("15:07:00", "unknown"),
        ("15:07:00 DUE TO TIME LIMIT", "unknown"),
        ("15:00:01", "crashed_rank"),  # the same moment in another time zone
    ],
)
def test_hours_without_a_step_where_one_took_a_second_are_a_freeze(
    tmp_path: Path, at: str, cause: str
) -> None:
    report = analyze(_job(tmp_path, at, {}))
    assert report.status == "hang" and short(report)[:2] == (cause, ())
    assert report.verdict is not None and "CANCELLED" in report.verdict.evidence[0].text


def test_stacks_that_were_taken_before_a_cancellation_tell_of_a_freeze(tmp_path: Path) -> None:
    report = analyze(
        _job(tmp_path, "10:31:00", {r: READING if r == 1 else INSIDE for r in range(4)}, steps=0)
    )
    assert short(report)[:2] == ("stuck_rank", (1,))


@pytest.mark.parametrize("what", ["Out Of Memory", "Killed", "Exited with exit code 1"])
def test_a_step_that_srun_ends_after_a_task_was_not_ended_from_outside(tmp_path: Path, what: str) -> None:
    after = ["srun: Terminating StepId=7.0", CANCELLED.format(at="10:00:00")]
    verdict = told(tmp_path, [f"srun: error: gpu03: task 21: {what}", *after]).verdict
    assert verdict is not None and (verdict.cause, verdict.category) != ("crashed_rank", "external")
    assert (
        verdict.cause == "crashed_rank"
        and "gpu03" in verdict.summary
        and "task 21" in verdict.explanation.lower()
    )


def test_ranks_that_are_killed_after_a_cancellation_did_not_die_by_themselves(tmp_path: Path) -> None:
    folder = _job(tmp_path, "10:00:01 DUE TO TIME LIMIT", {})
    with open(folder / "slurm.out", "a") as log:
        log.write("srun: error: gpu01: tasks 0-3: Killed\n")
    report = analyze(folder)
    assert short(report)[:2] == ("crashed_rank", ()) and level(report) == "high"
    assert report.verdict is not None and report.verdict.category == "external"


@pytest.mark.parametrize(("at", "blamed"), [("10:31:00", (2,)), ("10:00:01", ())])
def test_who_counted_one_step_less_when_all_fell_silent_long_before_the_end_is_a_guess(
    tmp_path: Path, at: str, blamed: tuple[int, ...]
) -> None:
    logs: dict[str, str | list[str]] = {
        f"rank{rank}.out": [
            f"2026-03-02 09:59:{30 + n} INFO [{rank}] batch {n} ready ({9 + n % 5} ms)"
            for n in range(10, 30 - (rank == 2))
        ]
        for rank in range(6)
    }
    logs["slurm.out"] = [CANCELLED.format(at=at)]
    cause, ranks, sure = short(told(tmp_path, logs))
    assert (cause, ranks) == ("stuck_rank" if blamed else "crashed_rank", blamed)
    assert not blamed or sure == "low"


SIGTERM = "W0302 10:00:09.000000 77 torch/distributed/elastic/agent/server/api.py:753] Received {n} death signal, shutting down workers"


@pytest.mark.parametrize(
    ("stacks", "answer"),
    [
        ({0: READING, 1: INSIDE, 2: INSIDE}, ("stuck_rank", (0,), "low")),
        ({0: READING, 1: INSIDE, 2: NATIVE}, ("crashed_rank", (), "low")),  # where a job that moves may be
        ({0: READING, 1: INSIDE}, ("stuck_rank", (0,), "low")),
    ],
)
def test_stacks_of_ranks_that_wait_for_one_before_a_sigterm_are_a_guess_at_a_freeze(
    tmp_path: Path, stacks: dict[int, str], answer: tuple[str, tuple[int, ...], str]
) -> None:
    folder = _job(tmp_path, "", stacks, steps=0)
    (folder / "slurm.out").write_text(SIGTERM.format(n=15) + "\n")
    assert short(analyze(folder)) == answer


@pytest.mark.parametrize("size", [2, 3])
def test_ctrl_c_at_one_rank_for_which_the_others_wait_hardly_tells_whether_it_was_frozen(
    tmp_path: Path, size: int
) -> None:
    """People press it when a job hangs, but one rank is always the slowest one."""
    at = '  File "{}", line 12, in {}'
    inside = at.format(
        "/opt/venv/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", "barrier"
    )
    lines = [SIGTERM.format(n=2)]
    for rank in range(size):
        own = at.format("/workspace/train/train.py", "<module>")
        stack = ["Traceback (most recent call last):", own, *([inside] if rank else []), "KeyboardInterrupt"]
        lines += [f"[rank{rank}]: {line}" for line in stack]
    assert short(told(tmp_path, lines)) == ("stuck_rank", (0,), "low")


@pytest.mark.parametrize(
    ("was", "sure"), [("was making progress", "high"), ("had shown no progress yet", "low")]
)
def test_what_the_watcher_saw_decides_whether_the_job_was_moving(tmp_path: Path, was: str, sure: str) -> None:
    """srun names the killed task before it says that the step was cancelled."""
    lines = (
        "srun: error: gpu01: task 1: Killed",
        CANCELLED.format(at="10:00:01"),
        "srun: error: gpu01: task 0: Killed",
    )
    killed = "".join(f"{line}\n" for line in lines)
    (tmp_path / "launcher").mkdir()
    (tmp_path / "launcher" / "gpu01.err").write_text(killed)
    for rank in range(2):
        (tmp_path / f"rank_{rank}.out").write_text("step 1\nstep 2\n")
    assert short(analyze(tmp_path))[:2] == ("crashed_rank", (1,))
    (tmp_path / "launcher" / "gpu01.7.run").write_text(f"hangscope: SIGTERM: the job {was}\n")
    report = analyze(tmp_path)
    assert short(report)[:2] == ("crashed_rank", ()) and level(report) == sure
    assert report.verdict is not None and report.verdict.category == "external"


STORE = "[rank{rank}]:[W1016 04:10:09.1 TCPStore.cpp:115] [c10d] recvVector failed on SocketImpl(fd=60, addr=[n1]:5000, remote=[n1]:29500): failed to recv, got 0 bytes"


def test_a_time_limit_is_no_ranks_fault_and_what_ranks_report_after_it_follows_from_it(
    tmp_path: Path,
) -> None:
    end = CANCELLED.format(at="04:10:01 DUE TO TIME LIMIT")
    late = [STORE.format(rank=rank) for rank in (1, 2)]
    verdict = judged(told(tmp_path / "late", [end, *late]))
    assert (verdict.category, verdict.culprit_ranks, verdict.suspect_ranks) == ("external", (), ())
    assert "No rank caused that end: what ranks 1 and 2 reported came after it." in verdict.explanation
    explanation = judged(told(tmp_path / "alone", ["[rank0]: step 5", end])).explanation
    assert "No rank caused that end." in explanation and "came after" not in explanation


def test_megatrons_line_of_an_iteration_is_the_last_progress_before_the_end(tmp_path: Path) -> None:
    lines = [
        f" iteration {n:7d}/  100000 | consumed samples: {64 * n:12d} | elapsed time per iteration (ms): 812.4 | lm loss: 2.1E+00 |"
        for n in (48200, 48210, 48220)
    ]
    end = CANCELLED.format(at="04:10:01 DUE TO TIME LIMIT")
    explanation = judged(told(tmp_path, [*lines, end])).explanation
    assert "last progress shown is 'iteration 48220/ 100000 |" in explanation


def test_a_job_that_was_ended_while_it_set_up_its_communicator_never_began(tmp_path: Path) -> None:
    rings = [
        f"{rank}: n1:{90 + rank}:{95 + rank} [{rank}] NCCL INFO Connected all rings" for rank in range(4)
    ]
    verdict = judged(told(tmp_path, [*rings, CANCELLED.format(at="04:10:01 DUE TO TIME LIMIT")]))
    assert (verdict.cause, verdict.culprit_ranks, verdict.confidence) == ("init_hang", (), "low")
    assert verdict.title == "The job reached its time limit while it was still building a communicator"


def test_a_preempted_job_is_to_be_requeued(tmp_path: Path) -> None:
    end = CANCELLED.format(at="04:10:01 DUE TO PREEMPTION")
    assert any("requeue" in step for step in judged(told(tmp_path, ["step 7", end])).advice)
