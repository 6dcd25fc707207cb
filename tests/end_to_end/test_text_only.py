"""Verdicts from logs alone: c10d's lines by kind, several deaths, restarts, mixed files, and the fixtures without their dumps."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.text_lines import (
    DEFAULT,
    WORK,
    c10,
    call,
    judged,
    mismatch,
    observed,
    short,
    status,
    timeout,
    told,
)

# --- the watchdog ---


def test_who_did_not_time_out_never_made_the_call(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), timeout(1), timeout(3), observed(2)])
    verdict = judged(report)
    assert short(report) == ("stuck_rank", (2,), "high")
    assert (verdict.op, verdict.seq, verdict.waiting_ranks) == ("all_reduce", 6, (0, 1, 3))
    assert Counter(e.kind for e in verdict.evidence if e.stance == "for")["log"] == 5
    assert {e.source.line for e in verdict.evidence if e.source} >= {1, 2, 3, 4}
    assert "crashed_rank" in [r.cause for r in report.document.ruled_out]


def test_a_rank_without_a_line_may_be_dead(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), timeout(1), timeout(3)], world_size=4)
    assert short(report) == ("crashed_rank", (2,), "low")
    assert "lost" not in judged(report).summary


def test_another_call_at_the_same_number(tmp_path: Path) -> None:
    report = told(tmp_path, [timeout(0), timeout(1), timeout(2, op="ALLGATHER", n=7), timeout(3)])
    assert short(report) == ("rank_conditional_collective", (2,), "medium")
    assert "collective_mismatch" in [r.cause for r in report.document.ruled_out]


def test_half_against_half_names_nobody(tmp_path: Path) -> None:
    report = told(
        tmp_path, [timeout(0), timeout(1, op="ALLGATHER", n=7), timeout(2), timeout(3, op="ALLGATHER", n=7)]
    )
    assert judged(report).culprit_ranks == () and judged(report).confidence != "high"


def test_who_timed_out_in_a_call_that_its_peers_count_as_completed_has_a_device_that_lags(
    tmp_path: Path,
) -> None:
    waiting = [line for r in (0, 1, 3) for line in (timeout(r), status(r, 6, 9, 5))]
    report = told(tmp_path, [*waiting, timeout(2, seq=5), status(2, 5, 5, 4)])
    assert short(report)[:2] == ("gpu_stall", (2,))


def test_local_ranks_of_a_group_that_lies_on_a_grid(tmp_path: Path) -> None:
    group = "PG ID 2 PG GUID 9(tensor_parallel) "
    lines = [
        line
        for r in (4, 5, 7)
        for line in (timeout(r, group=group, local=r - 4), status(r, 6, 9, 5, group=group, local=r - 4))
    ]
    report = told(tmp_path, [*lines, *(observed(r) for r in (0, 1, 2, 3, 6))])
    assert short(report) == ("stuck_rank", (6,), "medium")


def test_old_lines_without_a_global_rank(tmp_path: Path) -> None:
    lines = [
        f"[E ProcessGroupNCCL.cpp:474] [Rank {r}] Watchdog caught collective operation timeout: {WORK.format(seq=6, op=op, n=4)}"
        for r, op in enumerate(("ALLREDUCE", "ALLREDUCE", "BROADCAST"))
    ]
    assert judged(told(tmp_path, lines)).culprit_ranks == (2,)


# --- the desync report ---

DESYNC = """{head}Rank 0
\t - [0] Timeout at collective: ALLREDUCE, #6
\t - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
\t   - [{joined}] joined but didn't finish collective #6 (count from 1)
{missed}\t - Snapshot of ranks' latest states:
\t   #6 started ranks:
\t     [0, 2, 3] started ALLREDUCE
"""
MISSED = "\t     [1] finished collective #5, but didn't join collective #6 (count from 1)\n"


@pytest.mark.parametrize("head", [c10(0, f"[{DEFAULT}Rank 0] "), "[E ProcessGroupNCCL.cpp:474] "])
def test_a_desync_report(tmp_path: Path, head: str) -> None:
    report = told(tmp_path, {"all.log": DESYNC.format(head=head, joined="0, 2, 3", missed=MISSED)})
    assert short(report) == ("stuck_rank", (1,), "medium")
    assert (judged(report).op, judged(report).seq) == ("all_reduce", 6)


def test_where_all_joined_the_blame_of_the_report_is_void(tmp_path: Path) -> None:
    report = told(
        tmp_path,
        {"all.log": DESYNC.format(head=c10(0, f"[{DEFAULT}Rank 0] "), joined="0, 1, 2, 3", missed="")},
    )
    assert short(report) == ("network_stall", (), "low")


def test_who_never_joined_any_collective(tmp_path: Path) -> None:
    lines = [c10(0, f"[{DEFAULT}Rank 0] Rank 0"), "\t - [0] Timeout at collective: ALLREDUCE, #1"]
    lines.append(
        "\t - To our best knowledge, ranks [2] are the lagging ranks that caused this timeout. They never joined any collectives"
    )
    assert judged(told(tmp_path, lines, world_size=4)).culprit_ranks == (2,)


# --- DETAIL and monitored barriers ---


def test_fingerprints_three_to_one(tmp_path: Path) -> None:
    a, b = call("ALLREDUCE", 8), call("BROADCAST", 8)
    lines = [mismatch(r, r, a, 3, b) for r in range(3)] + [mismatch(3, 3, b, 0, a)]
    report = told(tmp_path, lines)
    assert short(report)[:2] == ("rank_conditional_collective", (3,))
    assert judged(report).seq == 5
    assert {e.source.line for e in judged(report).evidence if e.source} == {1, 2, 4}


def test_fingerprints_of_other_sizes(tmp_path: Path) -> None:
    a, b = call("ALLREDUCE", 8), call("ALLREDUCE", 9)
    report = told(tmp_path, [mismatch(0, 0, a, 2, b), mismatch(1, 1, a, 2, b), mismatch(2, 2, b, 0, a)])
    assert short(report)[:2] == ("shape_mismatch", (2,))


def test_two_to_two_names_nobody(tmp_path: Path) -> None:
    a, b = call("ALLREDUCE", 8), call("BROADCAST", 8)
    lines = [mismatch(r, r, (a, b)[r % 2], 1 - r % 2, (b, a)[r % 2]) for r in range(4)]
    assert judged(told(tmp_path, lines)).culprit_ranks == ()


def test_a_mismatch_in_a_subgroup_beats_a_barrier_of_all(tmp_path: Path) -> None:
    a, b = call("ALLREDUCE", 8), call("BROADCAST", 8)
    lines = ["[rank0]: RuntimeError: [Rank 0]: Ranks 1, 3, 5 failed to pass monitoredBarrier in 8000 ms"]
    lines += [mismatch(1, 0, a, 2, b), mismatch(3, 1, a, 2, b), mismatch(5, 2, b, 0, a)]
    report = told(tmp_path, lines)
    assert judged(report).culprit_ranks == (5,)
    assert report.to_dict()["verdict"]["confidence"] != "high"


def witness(rank: int) -> str:
    return f"[rank{rank}]: RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."


def test_a_monitored_barrier(tmp_path: Path) -> None:
    lines = [
        "[rank0]: RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 8000 ms",
        witness(1),
        witness(3),
    ]
    report = told(tmp_path, lines)
    assert short(report) == ("stuck_rank", (2,), "medium")
    assert Counter(e.stance for e in judged(report).evidence if e.kind == "log") == {"for": 3}


def test_a_barrier_that_names_the_majority_accuses_its_printer(tmp_path: Path) -> None:
    report = told(
        tmp_path,
        ["[rank0]: RuntimeError: [Rank 0]: Ranks 1, 2, 3 failed to pass monitoredBarrier in 8000 ms"],
    )
    assert short(report)[:2] == ("rank_conditional_collective", (0,))


@pytest.mark.parametrize(
    "accused",
    [
        {0: "1", 1: "0"},
        {0: "2, 3", 2: "0, 1"},  # in barriers of two groups, or before and behind a restart
        {0: "2", 1: "3"},
    ],
)
def test_barriers_that_accuse_each_others_reporters_name_nobody(
    tmp_path: Path, accused: dict[int, str]
) -> None:
    lines = [
        f"RuntimeError: [Rank {reporter}]: Ranks {ranks} failed to pass monitoredBarrier in 8000 ms"
        for reporter, ranks in accused.items()
    ]
    report = told(tmp_path, lines)
    assert report.status == "hang" and judged(report).culprit_ranks == ()


def test_who_accuses_the_rest_while_one_of_them_misses_it_alone_is_odd(tmp_path: Path) -> None:
    lines = [
        f"RuntimeError: [Rank {reporter}]: Ranks {ranks} failed to pass monitoredBarrier in 8000 ms"
        for reporter, ranks in {0: "1, 2, 3", 1: "0"}.items()
    ]
    assert judged(told(tmp_path, lines)).culprit_ranks == (0,)


@pytest.mark.parametrize("prefix", ["[rank{rank}]:", ""])
def test_running_collectives_are_a_recorder(tmp_path: Path, prefix: str) -> None:
    files: dict[str, str | list[str]] = {}
    for rank in range(4):
        calls = [call("ALLREDUCE", 64, n) for n in range(6)] + [call("ALLREDUCE", 65 if rank == 1 else 64, 6)]
        files[f"rank{rank}.err"] = [
            f"{prefix.format(rank=rank)}[I1120 15:13:24.220687360 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: {c}"
            for c in calls
        ]
    report = told(tmp_path, files)
    assert short(report)[:2] == ("shape_mismatch", (1,))
    assert len(report.table) == 28
    assert judged(report).group is not None and "assumed" in judged(report).group.desc  # type: ignore[union-attr]
    assert {e.source.file for e in judged(report).evidence if e.source} <= set(files)


def test_who_is_in_another_call_by_its_own_line_is_not_stuck_where_a_barrier_misses_it(
    tmp_path: Path,
) -> None:
    lines = [
        f"[I ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: {call('BROADCAST' if rank == 2 else 'ALLREDUCE', 64, 7)}"
        for rank in range(3)
    ]
    lines.append("RuntimeError: [Rank 0]: Ranks 2 failed to pass monitoredBarrier in 8000 ms")
    assert short(told(tmp_path, lines))[:2] == ("rank_conditional_collective", (2,))
