"""Answers to text without dumps: size before membership, a wait is no cause, who is pointed at, never an empty shrug."""

from __future__ import annotations

from pathlib import Path

import pytest

from hangscope.conclusion import Verdict
from tests.text_lines import DEFAULT, c10, judged, timeout, told


def answer(tmp_path: Path, *lines: str) -> Verdict:
    return judged(told(tmp_path, [*lines]))


def gather(rank: int, numel_in: int, numel_out: int) -> str:
    work = f"WorkNCCL(SeqNum=6, OpType=_ALLGATHER_BASE, NumelIn={numel_in}, NumelOut={numel_out}, Timeout(ms)=600000)"
    return c10(
        rank,
        f"[{DEFAULT}Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before",
    )


def test_without_a_stated_size_nothing_is_said_of_the_whole_group(tmp_path: Path) -> None:
    verdict = answer(tmp_path, *(timeout(r) for r in range(4)))
    assert "size of the group is not stated" in verdict.explanation
    assert (verdict.cause, verdict.suspect_ranks) == ("unknown", ())


def test_a_stated_size_tells_who_is_missing(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "torchrun --nnodes=2 --nproc_per_node=2 train.py", timeout(0), timeout(1))
    assert verdict.suspect_ranks == (2, 3) and "ranks 2-3" in verdict.collect[0].text


def test_elements_in_and_out_tell_the_size(tmp_path: Path) -> None:
    verdict = answer(tmp_path, gather(4, 8, 256))
    assert "32 ranks take part" in verdict.explanation and len(verdict.suspect_ranks) == 31


def test_where_all_of_a_stated_size_waited_nobody_is_missing(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "INFO world_size=2", timeout(0), timeout(1))
    assert "all 2 members" in verdict.explanation and not verdict.suspect_ranks


def test_who_sent_a_dump_signal_is_named_and_an_idle_default_group_is_read(tmp_path: Path) -> None:
    signal = "Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: 41, last completed NCCL work: 41."
    verdict = answer(tmp_path, *(c10(r, f"[{DEFAULT}Rank {r}] {signal}") for r in (0, 1)))
    assert "Rank 3 signalled" in verdict.explanation and "41 of 41" in verdict.explanation
    assert "another group" in verdict.explanation and not verdict.culprit_ranks


def test_fewer_operations_in_a_stuck_watchdogs_list_point_at_a_rank(tmp_path: Path) -> None:
    lines = [
        c10(r, f"[PG 3 Rank {r}] Heartbeat monitor timed out! workMetaList_.size() = {n}")
        for r, n in ((0, 121), (1, 121), (2, 97), (3, 121))
    ]
    assert answer(tmp_path, *lines).suspect_ranks == (2,)


def test_ranks_that_failed_a_monitored_barrier_are_the_suspects(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "RuntimeError: [Rank 0]: Ranks 4, 5, 6, 7 failed to pass monitoredBarrier in 60000 ms"
    )
    assert verdict.suspect_ranks == (4, 5, 6, 7) and "4 consecutive ranks" in verdict.explanation


def test_a_timeout_before_the_time_limit_is_the_freeze(tmp_path: Path) -> None:
    end = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-10-16T04:10:01 DUE TO TIME LIMIT ***"
    assert answer(tmp_path, timeout(2), end).cause == "unknown"


def test_an_exception_that_is_a_timeout_is_not_to_be_fixed(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "TimeoutError: RPC call to sample_tokens timed out.")
    assert verdict.cause == "unknown" and "not the cause" in verdict.explanation
    assert not any("Fix" in text or "Mend" in text for text in verdict.advice)


def test_a_text_without_a_fault_is_quoted_with_its_stage(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "2026-01-14 09:01:53,683 - INFO - Saving checkpoint", "", "It hangs here for hours"
    )
    assert "saving a checkpoint" in verdict.explanation and "It hangs here" in verdict.explanation
    assert verdict.collect[0].what == "stack" and not any("TORCH_FR" in item.text for item in verdict.collect)


def test_members_that_announce_themselves_twice_carry_the_same_ranks(tmp_path: Path) -> None:
    lines = [f"initializing ddp: GLOBAL_RANK: {r}, MEMBER: {r + 1}/4" for r in (0, 0, 1, 1)]
    verdict = answer(tmp_path, *lines)
    assert "2 of 4 members" in verdict.explanation and "same ranks" in verdict.explanation
    assert verdict.suspect_ranks == (2, 3)


def test_the_store_key_of_a_broadcast_names_its_sender(tmp_path: Path) -> None:
    verdict = answer(
        tmp_path, "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /broadcast_from/1/0"
    )
    assert verdict.suspect_ranks == (1,) and not verdict.culprit_ranks


def test_the_rank_inside_what_wins_over_the_prefix_of_whoever_copied_it(tmp_path: Path) -> None:
    verdict = answer(tmp_path, "[rank0]: what():  " + gather(4, 8, 256).partition("] ")[2])
    assert verdict.waiting_ranks == (4,)


@pytest.mark.parametrize(
    "line",
    [
        "n7:8:9 [3] ras/ras.cc:200 NCCL WARN RAS failed to bind to ::1<28028>: Address already in use",
        "OSError: [Errno 98] Address already in use: ('0.0.0.0', 8000)",
    ],
)
def test_another_servers_port_is_not_the_stores(tmp_path: Path, line: str) -> None:
    assert answer(tmp_path, line, timeout(0)).cause != "init_hang"
