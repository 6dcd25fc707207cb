"""What others show of a rank: it lost its peers after all of them had waited until their timeouts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import FIXTURES
from tests.dump_writer import SCRIPT, TORCH
from tests.text_lines import CLOSED, DEFAULT, c10, judged, short, timeout, told
from tests.verdicts import TIMED_OUT


def _raised(
    rank: int, error: str, second: int | None = None, line: int = 23, op: str = "broadcast"
) -> list[str]:
    stamp = "" if second is None else f"2026-11-20T15:13:{second:02}.000Z "
    lines = [
        "Traceback (most recent call last):",
        f'  File "{SCRIPT}", line {line}, in load',
        f"    dist.{op}(table, 0)",
        f'  File "{TORCH}/distributed/distributed_c10d.py", line 2900, in {op}',
        "    work.wait()",
        error,
    ]
    return [f"{stamp}[rank{rank}]: {text}" for text in lines]


def _three(late: list[str], second: int | None = None) -> list[str]:
    return [line for rank in (1, 2, 3) for line in _raised(rank, TIMED_OUT, second)] + late


def test_who_made_the_same_call_after_the_timeouts_was_too_slow(tmp_path: Path) -> None:
    assert short(told(tmp_path, _three(_raised(0, CLOSED, 45), 30))) == ("slow_rank", (0,), "medium")


def test_without_times_it_is_a_guess(tmp_path: Path) -> None:
    assert short(told(tmp_path, _three(_raised(0, CLOSED)))) == ("slow_rank", (0,), "low")


def test_who_loses_a_neighbour_in_the_same_second_is_not_told_from_a_victim(tmp_path: Path) -> None:
    assert short(told(tmp_path, _three(_raised(0, CLOSED, 30), 30)))[1] == ()


def test_who_was_in_another_call_is_named_for_that(tmp_path: Path) -> None:
    cause, ranks, _ = short(told(tmp_path, _three(_raised(0, CLOSED, 45, line=61, op="all_reduce"), 30)))
    assert ranks == (0,) and cause in ("rank_conditional_collective", "collective_mismatch")


def test_that_it_was_in_another_call_needs_no_times(tmp_path: Path) -> None:
    _, ranks, confidence = short(told(tmp_path, _three(_raised(0, CLOSED, line=61, op="all_reduce"))))
    assert (ranks, confidence) == ((0,), "medium")


@pytest.mark.parametrize("missing", [1, 2])
def test_nothing_follows_where_a_rank_is_silent(tmp_path: Path, missing: int) -> None:
    lines = [line for line in _three(_raised(0, CLOSED, 45), 30) if f"[rank{missing}]" not in line]
    report = told(tmp_path, lines)
    assert report.verdict is None or report.verdict.cause != "slow_rank"


def _stuck_watchdog(rank: int, second: int) -> str:
    what = "ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
    return c10(rank, f"[{DEFAULT}Rank {rank}] {what}", second)


def test_whose_own_watchdog_stood_still_before_any_timeout_blocks_it_itself(tmp_path: Path) -> None:
    timeouts = [timeout(rank) for rank in (0, 1, 3)]
    assert short(told(tmp_path, [_stuck_watchdog(2, 10), *timeouts])) == ("runtime_deadlock", (2,), "medium")


@pytest.mark.parametrize("lines", [[(2, 50)], [(2, 10), (1, 10)], [(0, 10)]])
def test_a_watchdog_that_stands_still_later_or_on_several_ranks_tells_nothing(
    tmp_path: Path, lines: list[tuple[int, int]]
) -> None:
    """The abort of a call that has timed out may stop a watchdog as well."""
    stuck = [_stuck_watchdog(rank, second) for rank, second in lines]
    assert short(told(tmp_path, [*(timeout(rank) for rank in (0, 1, 3)), *stuck]))[0] != "stuck_rank"


GIL = "Could not acquire GIL within 300 ms on exit, possible GIL induced hang"


@pytest.mark.parametrize(
    ("holders", "late", "named"), [((3,), (0, 1, 2), (3,)), ((3,), (0, 1, 2, 3), ()), ((2, 3), (0, 1), ())]
)
def test_whose_monitor_cannot_get_the_interpreters_lock_keeps_the_others_waiting(
    tmp_path: Path, holders: tuple[int, ...], late: tuple[int, ...], named: tuple[int, ...]
) -> None:
    """Who timed out was in the call as well; where several hold their locks, none of them is apart."""
    lines = [timeout(r, group=DEFAULT, seq=9) for r in late] + [
        c10(r, f"[{DEFAULT}Rank {r}] {GIL}") for r in holders
    ]
    verdict = judged(told(tmp_path, lines, world_size=4))
    assert verdict.culprit_ranks == named
    if named:
        assert verdict.cause == "stuck_rank" and any("GIL" in item.text for item in verdict.evidence)


def _ended_by_its_monitor(rank: int) -> list[str]:
    table = [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "============================================================",
        "train.py FAILED",
        "------------------------------------------------------------",
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        "------------------------------------------------------------",
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-10-16_03:31:50",
        "  host      : gpu01",
        f"  rank      : {rank} (local_rank: {rank})",
        "  exitcode  : -6 (pid: 4102)",
        "  error_file: <N/A>",
        "  traceback : Signal 6 (SIGABRT) received by PID 4102",
        "============================================================",
    ]
    return [_stuck_watchdog(rank, 10), *table]


def test_who_alone_is_ended_by_its_own_monitor_before_any_call_timed_out_blocks_itself(
    tmp_path: Path,
) -> None:
    report = told(tmp_path, _ended_by_its_monitor(2))
    assert short(report) == ("runtime_deadlock", (2,), "medium")


def test_whose_watchdog_stood_still_on_several_ranks_is_not_told_by_one_of_their_ends(tmp_path: Path) -> None:
    report = told(tmp_path, [_stuck_watchdog(1, 9), *_ended_by_its_monitor(2)])
    assert report.verdict is None or report.verdict.culprit_ranks == ()


@pytest.mark.parametrize(
    ("waited", "first"), [(None, False), ("rank2", False), ("rank0", True)], ids=["left", "waited", "later"]
)
def test_who_left_first_waited_for_nobody_and_left_before_the_first_timeout(
    tmp_path: Path, waited: str | None, first: bool
) -> None:
    lines = (FIXTURES / "text" / "service_thread_one_node.txt").read_text().splitlines()
    if waited is not None:
        theirs = lines[-1].replace("rank0", waited).replace("Rank 0", f"Rank {waited[-1]}")
        lines = [theirs, *lines[:-1]] if first else [*lines, theirs]
    assert short(told(tmp_path, lines))[1] == ((2,) if waited is None else ())
