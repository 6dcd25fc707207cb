"""Ranks that hold the others up without stopping."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import c10, judged, told


def _steps(slow: int, ranks: int = 4) -> list[str]:
    lines = []
    for step in range(40, 46):
        for rank in range(ranks):
            load, sync = (0.53, 0.03) if rank == slow else (0.05, 0.51)
            lines.append(
                f"18:09:{step} [rank {rank}] step {step} loss 0.3{rank} load {load} comp 0.01 sync {sync}"
            )
    return lines


def test_who_spends_far_longer_than_all_others_in_a_part_of_its_steps_is_slow(tmp_path: Path) -> None:
    report = told(tmp_path, _steps(2))
    assert (report.status, report.verdict and report.verdict.culprit_ranks) == ("no_hang", (2,))
    assert report.verdict is not None and report.verdict.cause == "slow_rank"
    assert "spends 0.53 s of each step in load, the others at most 0.05 s" in report.verdict.explanation


def test_equal_times_name_nobody_nor_does_a_wait_that_is_long(tmp_path: Path) -> None:
    assert told(tmp_path / "even", _steps(9)).status != "no_hang"
    waits = [line.replace("load", "barrier") for line in _steps(2)]
    assert told(tmp_path / "waits", waits).status != "no_hang"


def test_where_a_collective_timed_out_the_times_of_steps_explain_nothing(tmp_path: Path) -> None:
    timeout = "[Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
    assert judged(told(tmp_path, [*_steps(2), c10(1, timeout)])).cause != "slow_rank"
