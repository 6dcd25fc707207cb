"""Watchdog timeouts in an answer: one collective with its size, its members and who is not shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import DEFAULT, c10, judged, status, timeout, told

REPEATED = " timing out. [repeated 6x across cluster]"


def gather(rank: int, numel_in: int, numel_out: int) -> str:
    work = f"WorkNCCL(SeqNum=6, OpType=_ALLGATHER_BASE, NumelIn={numel_in}, NumelOut={numel_out}, Timeout(ms)=600000)"
    return c10(
        rank,
        f"[{DEFAULT}Rank {rank}] Watchdog caught collective operation timeout: {work} ran for 600029 milliseconds before",
    )


@pytest.mark.parametrize(
    ("lines", "phrases", "suspects"),
    [
        pytest.param(
            [timeout(r) for r in range(4)],
            [
                "Ranks 0-3 timed out after 600 s (from 03:21:38 to 03:31:38) in all_reduce seq 6",
                "neither the size",
            ],
            (),
            id="no size is stated",
        ),
        pytest.param(
            ["torchrun --nnodes=2 --nproc_per_node=2 train.py", timeout(0), timeout(1)],
            ["ranks 2 and 3 of 4 are not shown"],
            (2, 3),
            id="a launcher states the size",
        ),
        pytest.param(
            [
                "torchrun --nnodes=2 --nproc_per_node=2 train.py",
                "[rank2] saving",
                timeout(0),
                timeout(1, group=DEFAULT),
            ],
            ["rank 3 of 4 is not shown; rank 2 printed no timeout"],
            None,
            id="one of the others printed something else",
        ),
        pytest.param(
            ["INFO world_size=2", timeout(0), timeout(1)],
            ["these are all 2 members"],
            (),
            id="all members waited",
        ),
        pytest.param(
            [gather(3, 8, 32)],
            ["(8 elements in, 32 out)", "of 4 are not shown"],
            None,
            id="elements tell the size",
        ),
        pytest.param(
            [gather(4, 8, 64) + REPEATED],
            ["8 ranks take part, of which 7 reported that wait"],
            (),
            id="Ray shows one of several lines",
        ),
        pytest.param(
            ["[rank0] syncing out/step-5000 to s3", *(timeout(r) for r in (1, 2, 3))],
            ["the last line of rank 0 is 'syncing out/step-5000 to s3'"],
            (0,),
            id="a rank printed something else",
        ),
        pytest.param(
            [timeout(0), timeout(1, group=DEFAULT), status(1, 6, 9, 5)],
            ["Ranks 0 and 1 timed out", "enqueued work up to seq 9 and completed it up to seq 5"],
            (),
            id="a line without a group joins its peers",
        ),
        pytest.param(
            [timeout(r, n=96 if r == 1 else 128) for r in range(4)],
            ["Rank 1 called all_reduce with shape [96]"],
            (1,),
            id="one size differs",
        ),
        pytest.param(
            [timeout(0), timeout(1, op="BROADCAST", seq=9)],
            ["all_reduce seq 6", "broadcast seq 9", "do not name the group", "DETAIL"],
            (0, 1),
            id="different collectives",
        ),
        pytest.param(
            [*(timeout(r, op="BROADCAST", seq=4, group=DEFAULT) for r in (1, 2)), gather(0, 8, 32)],
            ["broadcast seq 4", "rank 3 is not shown", "the log and a stack of rank 3"],
            (3,),
            id="who is not shown may be behind all of them",
        ),
    ],
)
def test_timeouts(
    tmp_path: Path, lines: list[str], phrases: list[str], suspects: tuple[int, ...] | None
) -> None:
    verdict = judged(told(tmp_path, lines))
    assert not [phrase for phrase in phrases if phrase not in verdict.explanation]
    assert suspects is None or verdict.suspect_ranks == suspects


def test_the_rank_of_a_quoted_line_wins_over_the_prefix_of_whoever_copied_it(tmp_path: Path) -> None:
    line = "[rank0]: what():  " + gather(4, 8, 256).partition("] ")[2]
    assert judged(told(tmp_path, [line])).waiting_ranks == (4,)


def test_a_timeout_before_the_time_limit_is_the_freeze(tmp_path: Path) -> None:
    end = "slurmstepd: error: *** STEP 9.0 ON n1 CANCELLED AT 2026-10-16T04:10:01 DUE TO TIME LIMIT ***"
    assert judged(told(tmp_path, [timeout(2), end])).cause == "unknown"


def test_an_error_of_a_rank_that_does_not_wait_comes_first(tmp_path: Path) -> None:
    error = "[rank3] OSError: [Errno 28] No space left on device: '/scratch/cache'"
    verdict = judged(told(tmp_path, [error, *(timeout(r) for r in range(3))]))
    assert "No space left on device" in verdict.explanation and 3 in {
        *verdict.suspect_ranks,
        *verdict.culprit_ranks,
    }


def test_work_that_is_under_way_is_what_others_may_wait_for(tmp_path: Path) -> None:
    bar = "Running tokenizer on dataset:  58%|#####     | 620/1073 [30:10<22:04, 0.34 examples/s]"
    shown = judged(told(tmp_path, [timeout(1), bar])).explanation
    assert "a process of the job was at 'Running tokenizer" in shown and "which rank prints that bar" in shown


def test_a_limit_of_milliseconds_proves_no_deadlock(tmp_path: Path) -> None:
    lines = [
        timeout(r).replace("Timeout(ms)=600000", "Timeout(ms)=30").replace("600029", "118") for r in (0, 1)
    ]
    said = judged(told(tmp_path, lines)).explanation
    assert "below 10 seconds" in said and "after 118 ms" in said


def test_a_watchdog_that_fires_hours_late_was_stopped_itself(tmp_path: Path) -> None:
    lines = [timeout(r).replace("600029", "26402510") for r in (0, 1)]
    assert "was stopped or suspended" in judged(told(tmp_path, lines)).explanation


def test_stages_of_several_pipelines_that_wait_alike_are_one_wait(tmp_path: Path) -> None:
    """A batch of sends and receives has no size: it is printed as 2^64 - 1."""
    lines = ["using world size: 16, pipeline-model-parallel size: 2"]
    for rank in (8, 9, 10):
        group = f"PG ID 6 PG GUID {80 + rank}(PIPELINE_MODEL_PARALLEL_GROUP) "
        lines.append(timeout(rank, group=group, local=1, seq=1, op="COALESCED", n=2**64 - 1))
        lines.append(status(rank, 1, 1, -1, group=group, local=1))
    report = told(tmp_path, lines)
    said = judged(report).explanation
    assert "Ranks 8-10 timed out after 600 s" in said
    assert "of the groups PIPELINE_MODEL_PARALLEL_GROUP" in said
    assert "anks 8-10 enqueued work up to seq 1 and completed nothing" in said
    assert "elements" not in said and "text of 3 of 16 ranks" in report.document.partial.text


@pytest.mark.parametrize(
    ("op", "rule"),
    [
        ("SEND", "a send ends only when its peer posts the matching recv"),
        ("RECV", "a recv ends only when its peer posts the matching send"),
        ("ALLREDUCE", ""),
    ],
)
def test_a_half_of_a_pair_waits_for_the_other_half(tmp_path: Path, op: str, rule: str) -> None:
    explanation = judged(told(tmp_path, [timeout(1, op=op, group="PG ID 2 PG GUID 7(pp) ")])).explanation
    assert rule in explanation.lower() and ("ends only when" in explanation) is bool(rule)


def test_what_all_ranks_of_a_job_report_sets_none_of_them_apart(tmp_path: Path) -> None:
    stuck = "[{group}Rank {rank}] ProcessGroupNCCL's watchdog got stuck for 480 seconds without making progress in monitoring enqueued collectives."
    lines = [
        "It hangs, 4 GPUs.",
        "INFO world_size=4",
        *(c10(r, stuck.format(group=DEFAULT, rank=r)) for r in range(4)),
    ]
    ends = "[{group}Rank 0] Terminating the process after attempting to dump debug info, due to ProcessGroupNCCL watchdog hang."
    lines += [c10(rank, ends.format(group=DEFAULT)) for rank in (0, 1)]
    explanation = judged(told(tmp_path, lines)).explanation
    assert "All 4 ranks report that: the text does not show which rank is to blame." in explanation


def test_all_ranks_in_the_first_collective_of_their_group_have_met_and_their_transfer_does_not_end(
    tmp_path: Path,
) -> None:
    start = "torchrun --standalone --nproc_per_node=2 train.py"
    lines = [
        start,
        *(line for r in (0, 1) for line in (timeout(r, group=DEFAULT, seq=1), status(r, 1, 1, -1))),
    ]
    report = told(tmp_path, lines)
    verdict = judged(report)
    assert verdict.culprit_ranks == () and "none of them is missing" in verdict.explanation
    assert "NCCL_P2P_DISABLE=1" in report.to_text()
