"""What a short paste is answered with: waits are told from other errors, and lines without a group join their peers'."""

from __future__ import annotations

from pathlib import Path

from hangscope.model.conclusion import Verdict
from tests.conftest import analyze


def judged(tmp_path: Path, text: str) -> Verdict:
    (tmp_path / "paste.txt").write_text(text)
    verdict = analyze(tmp_path).verdict
    assert verdict is not None
    return verdict


def test_an_error_that_is_no_timeout_is_not_called_a_wait(tmp_path: Path) -> None:
    taken = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: 29531, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use\n"
    verdict = judged(tmp_path, taken)
    assert verdict.cause == "init_hang" and "wait" not in verdict.explanation


def test_timeouts_with_and_without_their_groups_name_are_one_collective(tmp_path: Path) -> None:
    line = (
        "[rank{0}]:[E108 23:50:41.606220767 ProcessGroupNCCL.cpp:607] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=77, OpType=_ALLGATHER_BASE, NumelIn=4096, NumelOut=8192, Timeout(ms)=1800000) ran for 1800082 milliseconds before timing out.\n"
    )
    status = (
        "[rank1]:[E108 23:50:41.551190338 ProcessGroupNCCL.cpp:1664] [PG 0 (default_pg) Rank 1] Exception (either an error or timeout) detected by "
        "watchdog at work: 77, last enqueued NCCL work: 79, last completed NCCL work: 76.\n"
    )
    explanation = judged(tmp_path, line.format(0) + line.format(1) + status).explanation
    assert "all 2 members" in explanation and "different groups" not in explanation


def test_local_ranks_on_the_command_lines_of_one_host_place_stacks(tmp_path: Path) -> None:
    stacks = []
    for rank in range(3):
        frame = (
            "_load (data/webset.py:74)"
            if rank == 1
            else "all_reduce (torch/distributed/distributed_c10d.py:2810)"
        )
        stacks += [f"Process {70 + rank}: python -u fit.py --local-rank={rank}", "Python v3.12.3", ""]
        stacks += [f'Thread {70 + rank} (active): "MainThread"', f"    {frame}", "    train (fit.py:40)", ""]
    assert judged(tmp_path, "\n".join(stacks)).culprit_ranks == (1,)
