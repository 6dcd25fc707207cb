"""Reports that compare ranks: those alike together, the fewer first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.text_lines import DEFAULT, c10, call, judged, mismatch, timeout, told

STALL = "W horovod/common/stall_inspector.cc:107] One or more tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for remainder of ranks for more than 60 seconds."


def signal(rank: int, enqueued: int) -> str:
    text = f"Received a dump signal due to a collective timeout from  rank 3 and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: 844."
    return c10(rank, f"[{DEFAULT}Rank {rank}] {text}")


@pytest.mark.parametrize(
    ("lines", "phrases", "suspects"),
    [
        pytest.param(
            [timeout(3, seq=845), signal(9, 845), signal(12, 844), signal(14, 845)],
            ["rank 12: 'Received a dump signal", "Last enqueued NCCL work: 844"],
            (12,),
            id="counters",
        ),
        pytest.param(
            [
                STALL,
                "Missing ranks:",
                "0: [allreduce.conv1]",
                "1: [allgather.scores]",
                "2: [allgather.scores]",
            ],
            ["rank 0 did not submit allreduce.conv1; ranks 1 and 2 did not submit allgather.scores"],
            (0,),
            id="Horovod: ranks lack different tensors",
        ),
        pytest.param(
            [
                "$ horovodrun -np 6 python fit.py",
                STALL,
                f"Stalled ops: {', '.join(f'allreduce.{n} [ready ranks: 0, 1, 4, 5]' for n in ('w', 'b'))}",
            ],
            ["ranks 2 and 3 did not submit"],
            (2, 3),
            id="Horovod: no tensor is ready on ranks of a stated size",
        ),
        pytest.param(
            [f"initializing ddp: GLOBAL_RANK: {r}, MEMBER: {r + 1}/4" for r in (0, 0, 1, 1)],
            ["2 of 4 members", "ranks 2 and 3 are not in this text"],
            (2, 3),
            id="members announced twice",
        ),
        pytest.param(
            [
                f"INFO [parallel_state.py:1065] rank {r} in world size 4 is assigned as DP rank 0, PP rank 0, TP rank {r}"
                for r in (0, 1, 3)
            ],
            ["3 of 4 members", "rank 2 is not in this text"],
            (2,),
            id="members announced by vLLM",
        ),
    ],
)
def test_ranks_are_compared(
    tmp_path: Path, lines: list[str], phrases: list[str], suspects: tuple[int, ...]
) -> None:
    verdict = judged(told(tmp_path, lines))
    assert not [phrase for phrase in phrases if phrase not in verdict.explanation]
    assert verdict.suspect_ranks == suspects


def test_of_two_ranks_that_differ_none_is_the_outlier(tmp_path: Path) -> None:
    line = mismatch(5, 5, call("ALLREDUCE", 8), 0, call("BROADCAST", 8))
    verdict = judged(told(tmp_path, [line]))
    assert "rank 0 issued broadcast [8] Float; rank 5 issued all_reduce [8] Float" in verdict.explanation
    assert verdict.suspect_ranks == (0, 5)


def adapters(host: str, used: str) -> str:
    return f"{host}:225007:225311 [0] NCCL INFO NET/IB : Using {used} [RO]; OOB bond0:10.77.0.11<0>"


def test_hosts_with_other_adapters_are_compared(tmp_path: Path) -> None:
    lines = [adapters("gpu-a", "[0]mlx5_2:1/RoCE"), adapters("gpu-b", "[0]mlx5_5:1/RoCE")]
    said = judged(told(tmp_path, lines)).explanation
    assert "gpu-a [0]mlx5_2:1/RoCE; gpu-b [0]mlx5_5:1/RoCE" in said


def test_one_set_of_adapters_is_worth_no_word(tmp_path: Path) -> None:
    lines = [adapters(f"gpu-{n}", "[0]mlx5_2:1/RoCE") for n in "ab"]
    assert "adapters" not in told(tmp_path, lines).to_text()


def _call(host: str, pid: int, call: str, pointer: str, peer: int, dtype: int = 7) -> str:
    return f"{host}:{pid}:{pid} [0] NCCL INFO {call}: opCount 4 sendbuff (nil) recvbuff 0x7f00 count 4096 datatype {dtype} op 0 root {peer} comm {pointer} [nranks=2] stream 0x55"


def _member(host: str, pid: int, pointer: str, rank: int) -> str:
    return f"{host}:{pid}:{pid + 9} [0] NCCL INFO comm {pointer} rank {rank} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0"


def test_the_ranks_of_a_pair_are_those_that_the_other_one_names(tmp_path: Path) -> None:
    """A send and a receive that differ in their element type are pending, whatever the log shows."""
    lines = [_call("h1", 40, "Send", "0x7fa0", 1), _call("h2", 50, "Recv", "0x7fb0", 0, dtype=6)]
    verdict = judged(told(tmp_path, lines))
    assert verdict.cause == "p2p_mismatch"
    assert verdict.title == "Rank 0 issued send, rank 1 the matching recv: their element types differ"
    lines[1] = _call("h2", 50, "Recv", "0x7fb0", 0)
    assert judged(told(tmp_path / "alike", lines)).cause != "p2p_mismatch"


def test_all_ranks_that_logged_one_collective_last_are_there(tmp_path: Path) -> None:
    lines = [_member("h1", 40, "0x7fa0", 0), _member("h2", 50, "0x7fb0", 1)]
    lines += [_call("h1", 40, "Broadcast", "0x7fa0", 0), _call("h2", 50, "Broadcast", "0x7fb0", 0)]
    title = "Both ranks issued the same collective last, broadcast of root 0"
    assert judged(told(tmp_path, [*lines, "It hangs there."])).title == title
    lines[-1] = _call("h2", 50, "AllReduce", "0x7fb0", 0)
    assert judged(told(tmp_path / "other", lines)).title != title
