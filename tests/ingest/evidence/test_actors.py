"""A trainer and its rollout workers in one log: a driver of Ray prints the lines of all of its actors."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import analyze
from tests.dump_writer import stuck, write_all

STEP = "[rank{}]:[E1120 15:13:{}.220687360 ProcessGroupNCCL.cpp:632] [Rank {}] Watchdog caught collective operation timeout: "
WORK = "WorkNCCL(SeqNum={}, OpType={}, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600010 milliseconds before timing out."


def waits(actor: str, pid: int, rank: int, seq: int, op: str, second: int = 24) -> str:
    """Return the line of a rank that has waited for ten minutes."""
    line = STEP.format(rank, second, rank) + WORK.format(seq, op)
    return f"({actor} pid={pid + rank}, ip=10.0.0.{pid // 100}) {line}\n"


def raises(actor: str, pid: int, rank: int) -> str:
    """Return the lines of a rank that raised."""
    lines = (
        "Traceback (most recent call last):",
        '  File "/workspace/rl/rollout.py", line 41, in generate',
        "    raise ValueError(prompt)",
        "ValueError: prompt too long",
    )
    return "".join(
        f"({actor} pid={pid + rank}, ip=10.0.0.{pid // 100}) [rank{rank}]: {line}\n" for line in lines
    )


def test_a_crash_among_the_rollout_workers_is_no_crash_of_the_trainers_rank(tmp_path: Path) -> None:
    text = raises("RolloutWorker", 300, 2)
    text += "".join(waits("TrainWorker", 100, rank, 812, "ALLREDUCE") for rank in (0, 1, 3))
    (tmp_path / "driver.log").write_text(text)
    report = analyze(tmp_path / "driver.log")
    told = next(w.message for w in report.warnings if w.code == "several_worlds")
    assert told.startswith(
        "2 jobs of their own lie here, each with ranks from 0: actor RolloutWorker (3 ranks, hang); "
    )
    assert "actor TrainWorker (4 ranks, hang)" in told and told.endswith("actor RolloutWorker is analysed")
    assert report.verdict is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == ("crashed_rank", (2,))
    assert report.verdict.waiting_ranks == () and report.verdict.confidence != "high"


def test_two_jobs_that_wait_are_not_one_that_waits_in_a_circle(tmp_path: Path) -> None:
    text = "".join(waits("TrainWorker", 100, rank, 812, "ALLREDUCE") for rank in (0, 1, 3))
    text += "".join(waits("RolloutWorker", 300, rank, 44, "ALLGATHER", 26) for rank in (0, 2))
    (tmp_path / "driver.log").write_text(text)
    report = analyze(tmp_path / "driver.log")
    assert report.verdict is not None
    assert report.verdict.cause != "collective_order_mismatch"
    seq = report.verdict.seq
    assert (seq, report.verdict.waiting_ranks) in ((812, (0, 1, 3)), (44, (0, 2)))


def test_lines_of_a_log_of_two_jobs_are_not_put_to_the_dumps_of_one(tmp_path: Path) -> None:
    write_all(stuck(4, culprit=1), tmp_path / "dumps")
    alone = analyze(tmp_path).verdict
    text = raises("RolloutWorker", 300, 2) + waits("TrainWorker", 100, 0, 812, "ALLREDUCE")
    (tmp_path / "driver.log").write_text(text)
    report = analyze(tmp_path)
    assert report.verdict is not None and alone is not None
    assert (report.verdict.cause, report.verdict.culprit_ranks) == (alone.cause, (1,))
    assert any("actors of 2 jobs speak in logs" in w.message for w in report.warnings)


def test_numbered_names_and_controllers_and_an_engines_wrappers_are_one_job(tmp_path: Path) -> None:
    trainers = "".join(waits(f"Trainer-{rank}", 100, rank, 812, "ALLREDUCE") for rank in (0, 1, 3))
    quoted = "".join(f"(Controller pid=7) [rank{rank}]: RuntimeError: it says\n" for rank in (0, 1))
    engine = waits("LLMRayActor", 500, 0, 9, "ALLREDUCE") + waits("RayWorkerWrapper", 500, 1, 9, "ALLREDUCE")
    for name, text in (("trainers", trainers), ("quoted", trainers + quoted), ("engine", engine)):
        (tmp_path / f"{name}.log").write_text(text)
        report = analyze(tmp_path / f"{name}.log")
        assert not [w for w in report.warnings if w.code == "several_worlds"], name
