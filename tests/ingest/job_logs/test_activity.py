"""What shows that a process makes no progress."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.conftest import FIXTURES, analyze
from tests.text_lines import short, status, timeout, told

PROMPT = ["> /workspace/train/loss.py(66)forward()", "-> scale = scale / scale.sum()", "(Pdb) "]
BLOCKED = "[881320.40] INFO: task python:9914 blocked for more than 120 seconds."


def _rows(option: str = "--rank {}") -> list[str]:
    return [
        f"  {9914 + n} Ds   rpc_wait_bit_killable        python3 fit.py {option.format(n)}" for n in range(4)
    ]


def _waits(*ranks: int) -> list[str]:
    return [line for rank in ranks for line in (timeout(rank), status(rank, 6, 6, 5))]


def test_a_prompt_of_a_job_of_which_several_ranks_are_silent_names_nobody(tmp_path: Path) -> None:
    begun = [f"[rank{rank}] iter 40 loss 2.1" for rank in range(4)]
    assert short(told(tmp_path, [*begun, *PROMPT, *_waits(0, 2)]))[1] == ()


def test_who_timed_out_itself_waits_in_the_kernel_for_its_end(tmp_path: Path) -> None:
    assert 0 not in short(told(tmp_path, [*_rows(), BLOCKED, *_waits(0, 2)]))[1]


def test_a_monitor_without_a_heartbeat_proves_the_stop_and_names_nobody(tmp_path: Path) -> None:
    line = (
        "[WARNING] [RankMonitorServer:gpu02:rank {}] Did not get subsequent heartbeat. Waited 180.00 seconds."
    )
    report = told(tmp_path, [line.format(rank) for rank in (3, 1)])
    assert report.status == "hang" and short(report)[:2] == ("unknown", ())


def test_a_capture_that_finds_a_rank_stopped_says_so(tmp_path: Path) -> None:
    state = tmp_path / "job" / "capture_01" / "kernel_rank_1.txt"
    state.parent.mkdir(parents=True)
    state.write_text("process 9914 is stopped\n  9914 python: stopped, in do_signal_stop\n")
    report = told(tmp_path / "job", _waits(0, 2))
    assert short(report)[:2] == ("stuck_rank", (1,))
    assert report.verdict is not None and "kill -CONT" in report.verdict.advice[0]


def test_a_rank_that_computes_may_yet_arrive(tmp_path: Path) -> None:
    job = tmp_path / "job"
    shutil.copytree(FIXTURES / "stuck_lock" / "dumps", job)
    before = analyze(job).verdict
    text = "process 9914 is computing: 98% of a processor, in Python code\n"
    (job / "activity_rank_1.txt").write_text(text)
    report = analyze(job)
    after = report.verdict
    assert before is not None and after is not None
    assert (before.culprit_ranks, before.confidence) == ((1,), "high")
    assert (after.culprit_ranks, after.confidence) == ((1,), "medium")
    assert any(other.cause == "slow_rank" for other in after.alternatives)
    assert str(report.document.headline).startswith("Rank 1 is computing and has not entered")


def test_a_row_of_ps_shows_who_was_stopped(tmp_path: Path) -> None:
    head = "  PID  PPID STAT WCHAN               TIME COMMAND"
    rows = [f" {7291 + n}  7290 SNl  futex_do_wait   00:10 python3 fit.py --rank {n}" for n in range(4)]
    rows[1] = rows[1].replace("SNl  futex_do_wait ", "TNl  do_signal_stop")
    said = "[2026-11-28 01:02:02,670] [INFO] [launch.py:245:main] process {} spawned with command: ['python3', 'fit.py', '--local_rank={}']"
    started = [said.format(7291 + n, n) for n in range(4)]
    report = told(tmp_path, {"ps.txt": [head, *rows], "job.log": [*started, *_waits(0, 2, 3)]})
    assert short(report)[:2] == ("stuck_rank", (1,))
