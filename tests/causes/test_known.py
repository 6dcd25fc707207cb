"""Causes by known messages, by a host thread that never returned, and by two ranks that both send."""

from __future__ import annotations

from pathlib import Path

from tests.text_lines import judged, short, timeout, told

COLL = "gpu:{pid}:{pid} [{dev}] NCCL INFO {op}: opCount {n} sendbuff (nil) recvbuff 0x7f count 64 datatype 7 op 0 root {peer} comm 0x55{dev} [nranks=2] stream 0x1"


def test_a_known_defect_quotes_its_upstream_issue_and_blames_no_gpu(tmp_path: Path) -> None:
    lines = [
        f"h:{p}:9 [{p}] transport/nvls.cc:254 NCCL WARN Cuda failure 1 'invalid argument'" for p in (0, 1)
    ]
    verdict = judged(told(tmp_path, lines))
    assert (verdict.cause, verdict.category, verdict.culprit_ranks) == ("known_defect", "environment", ())
    assert "NVIDIA/nccl/issues/1672" in verdict.explanation


def test_two_ranks_that_both_send_do_not_meet(tmp_path: Path) -> None:
    zero = [COLL.format(pid=100, dev=0, op="Send", n=n, peer=1) for n in (1, 2, 3)]
    one = [
        COLL.format(pid=101, dev=1, op=op, n=n, peer=0) for n, op in enumerate(("Recv", "Recv", "Send"), 1)
    ]
    verdict = judged(told(tmp_path, [*zero, *one]))
    assert (verdict.cause, verdict.culprit_ranks) == ("p2p_mismatch", ()) and "number 3" in verdict.summary


def test_a_crash_names_the_rank_of_its_process(tmp_path: Path) -> None:
    lines = [
        "n1:694:945 [0] NCCL INFO ncclCommInitRank comm 0x1aab2d0 rank 3 nranks 8 cudaDev 0 busId 801000 commId 0x1 - Init START",
        "[n1:694:0:945] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
    ]
    assert short(told(tmp_path, lines))[:2] == ("crashed_rank", (3,))


def test_a_bridge_on_one_host_is_why_a_job_of_two_hosts_stopped(tmp_path: Path) -> None:
    nics = [
        "n1:12:12 [0] NCCL INFO Bootstrap : Using eth0:10.9.0.21<0>",
        "n2:17:17 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
    ]
    waits = [timeout(rank) for rank in (0, 1)]
    assert short(told(tmp_path / "two", [*nics, *waits])) == ("network_stall", (), "low")
    alone = [line.replace("n1:", "n2:") for line in nics]
    assert short(told(tmp_path / "one", [*alone, *waits]))[0] != "network_stall"
    assert short(told(tmp_path / "healthy", nics))[0] != "network_stall"
