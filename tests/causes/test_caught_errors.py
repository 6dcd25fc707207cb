"""Errors that a rank caught: it went on after them, and did not die of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import analyze
from tests.text_lines import CLOSED, judged, raised, short, told
from tests.verdicts import TIMED_OUT


@pytest.mark.parametrize(
    ("place", "dies"),
    [
        ("/opt/venv/lib/python3.11/site-packages/torch/distributed/checkpoint/filesystem.py", False),
        (
            "/workspace/train/shards.py",
            False,
        ),  # what ends a process has torch's prefix, as its later error shows
    ],
)
def test_an_error_that_a_library_prints_and_outlives_is_no_death(
    tmp_path: Path, place: str, dies: bool
) -> None:
    """The traceback of one that a library caught begins in its own frames, and the rank waits until its timeout later."""
    begin = "Traceback (most recent call last):"
    missing = "FileNotFoundError: [Errno 2] No such file or directory: 'ckpt/.metadata'"
    waits = [begin, '  File "/workspace/train/train.py", line 18, in main', TIMED_OUT]
    logs: dict[str, str | list[str]] = {
        f"rank_{rank}.log": [f"[rank{rank}]: {line}" for line in waits] for rank in range(3)
    }
    odd = [begin, f'  File "{place}", line 929, in read_metadata', missing]
    logs["rank_2.log"] = [*odd, *logs["rank_2.log"]]
    assert (short(told(tmp_path, logs))[:2] == ("crashed_rank", (2,))) == dies


def test_who_says_behind_its_error_that_it_is_done_survived_it(tmp_path: Path) -> None:
    """An error that a library's end raised and the program caught."""
    lines = [f"[rank{rank}]: step {step}" for step in range(3) for rank in range(2)]
    for rank in range(2):
        lines += [*raised(rank, "TimeoutError: upload"), f"[rank{rank}]: rank {rank} finished after 3 steps"]
    assert told(tmp_path / "caught", lines).status == "no_hang"
    assert short(told(tmp_path / "died", lines[:-1]))[:2] == ("crashed_rank", (1,))


@pytest.mark.parametrize(
    ("where", "cause"), [("fit", "crashed_rank"), ("read", "rank_conditional_collective")]
)
def test_an_error_that_took_a_rank_away_from_its_peers_counts_though_it_was_caught(
    tmp_path: Path, where: str, cause: str
) -> None:
    """It left `fit`, in which they wait, and waits in its handler; one from `read` parted nobody."""

    def traceback(prefix: str, frames: list[tuple[str, int]], error: str) -> list[str]:
        lines = ["Traceback (most recent call last):"]
        for name, line in frames:
            lines += [f'  File "/w/train.py", line {line}, in {name}', f"    {name}_more()"]
        return [prefix + line for line in [*lines, error]]

    for rank in range(3):
        lines = ["step 1", "step 2"]
        if rank == 1:
            lines += ["ERROR failed", *traceback("", [("main", 40), (where, 23)], "ValueError: no column 7")]
        ends = [("main", 45)] if rank == 1 else [("main", 40), ("fit", 25)]
        lines += traceback(f"[rank{rank}]: ", ends, CLOSED)
        (tmp_path / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    assert short(analyze(tmp_path))[:2] == (cause, (1,))


@pytest.mark.parametrize(("outermost", "died"), [("<module>", True), ("publish", False)])
def test_threads_that_go_on_do_not_show_that_an_error_was_caught(
    tmp_path: Path, outermost: str, died: bool
) -> None:
    trace = [
        "Traceback (most recent call last):",
        f'  File "/w/moe.py", line 50, in {outermost}',
        "    dispatch()",
        '  File "/w/moe.py", line 41, in dispatch',
        "    check(sizes)",
        "ValueError: 74 tokens for 76 places",
    ]
    for rank in range(3):
        lines = ["step 1", "step 2", *(trace if rank == 1 else []), "no progress, recorder written"]
        (tmp_path / f"rank{rank}.log").write_text("\n".join(lines) + "\n")
    assert (short(analyze(tmp_path))[:2] == ("crashed_rank", (1,))) == died


def test_what_a_vendor_prints_below_an_error_is_no_step_after_it(tmp_path: Path) -> None:
    error = (
        "RuntimeError: npuSynchronizeDevice: NPU function error: aclrtSynchronizeDevice, error code is 507046"
    )
    below = "[rank2]: EE1002: 2024-10-11-09:27:55.318.207 Stream synchronize timeout."
    verdict = judged(told(tmp_path, [*raised(2, error), below, f"[rank6]: {error}", f"[rank1]: {error}"]))
    assert verdict.culprit_ranks == ()  # all waited
    assert "Ranks 1, 2 and 6 raised RuntimeError" in verdict.summary


def test_who_issues_collectives_long_after_it_ran_out_of_memory_survived_that(tmp_path: Path) -> None:
    """A batch that did not fit was skipped, so that the rank is one step ahead of the others."""
    oom = (
        "2026-02-19 11:02:11,300 step 2178: CUDA out of memory. Tried to allocate 3.41 GiB. -> skipping batch"
    )
    waits = "2026-02-19 11:23:10,010 [rank{0}]:[E219 11:23:10.008840170 ProcessGroupNCCL.cpp:688] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=21603, OpType=ALLREDUCE, NumelIn={1}, NumelOut={1}, Timeout(ms)=600000) ran for 600037 milliseconds before timing out."
    logs: dict[str, str | list[str]] = {
        f"rank_{rank}.log": [waits.format(rank, 1 if rank == 2 else 65536)] for rank in range(4)
    }
    logs["rank_2.log"] = [oom, *logs["rank_2.log"]]
    report = told(tmp_path, logs)
    assert judged(report).culprit_ranks == (2,) and judged(report).cause != "crashed_rank"
