from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from hangscope.ingest.nccl import warn
from hangscope.ingest.nccl.line import parse_line
from hangscope.ingest.nccl.warn import classify
from tests.nccl_writer import NcclWriter, Proc
from tests.text_lines import judged, raised, told

PROC = Proc("node1", 77, 2)


def fields(text: str, level: str = "WARN") -> dict[str, Any] | None:
    [line] = parse_line(f"node1:77:78 [2] a/b.cc:9 NCCL {level} {text}")
    return classify(line)


@pytest.mark.parametrize("rule", warn.rules(), ids=lambda rule: f"{rule.fault}: {rule.pattern.pattern[:40]}")
def test_an_example_is_read_by_its_rule(rule: warn.WarnRule) -> None:
    for example in rule.examples:
        found = fields(example, "INFO" if rule.info else "WARN")
        if not rule.fault:
            assert found is None
        else:
            assert found is not None and (found["fault"], found["tier"]) == (rule.fault, rule.tier)


def test_a_warning_of_no_known_wording_names_no_fault() -> None:
    for text in ("NET/OFI Failed to initialize rdma protocol", "something that a later release may say"):
        assert fields(text) == {"fault": "other", "tier": 3}


@pytest.mark.parametrize(
    ("text", "peer", "kind"),
    [
        ("socketProgress: Connection closed by remote peer node5<45678>", "node5", "closed_by_peer"),
        ("Net : Connection closed by remote peer 10.1.0.2<45678>", "10.1.0.2", "closed_by_peer"),
        (
            "Net : Call to recv from 10.1.0.2<4> failed : Connection reset by peer",
            "10.1.0.2",
            "closed_by_peer",
        ),
        ("socketStartConnect: Connect to 10.1.0.2<4> failed : Connection refused", "10.1.0.2", "connect"),
        (
            "socketPollConnect: Connect to fe80::5<4> returned 113(No route to host) errno 115(x)",
            "fe80::5",
            "connect",
        ),
        ("Net : Connect to 10.1.0.2<4> failed : Connection timed out", "10.1.0.2", "connect"),
        (
            "socketPollConnect: connect to 10.1.0.2<4> returned refused, exceeded error retry count",
            "10.1.0.2",
            "connect",
        ),
    ],
)
def test_the_printer_of_a_lost_connection_is_a_victim(text: str, peer: str, kind: str) -> None:
    found = fields(text)
    assert found is not None
    assert (found["fault"], found["tier"] > 1, found["peer_host"]) == (kind, True, peer)


def test_ranks_named() -> None:
    assert fields("Bootstrap Root : rank 3 of 16 ranks has already checked in") == {
        "fault": "bootstrap", "tier": 1, "peer_rank": 3,
    }  # fmt: skip
    found = fields("Duplicate GPU detected : rank 1 and rank 5 both on CUDA device 1b000")
    assert found is not None
    assert (found["rank_a"], found["peer_rank"], found["bus_id"]) == (1, 5, "1b000")
    found = fields("Mismatched NCCL version detected : rank 0 version 22604 rank 9 version 22501")
    assert found is not None and found["peer_rank"] == 9
    found = fields("Proxy Call to rank 4 failed (Connect)")
    assert found is not None and (found["peer_rank"], found["tier"]) == (4, 3)
    found = fields("No transport found for rank 2[1b000] -> rank 6[1c000]")
    assert found is not None and (found["rank_a"], found["peer_rank"]) == (2, 6)


@pytest.mark.parametrize(
    "version",
    [
        (2, 4, 8), (2, 10, 3), (2, 17, 1), (2, 18, 3), (2, 19, 4), (2, 20, 5),
        (2, 22, 3), (2, 27, 3), (2, 28, 9), (2, 29, 2), (2, 30, 7),
    ],
)  # fmt: skip
def test_failed_completions_of_every_release(version: tuple[int, int, int]) -> None:
    writer = NcclWriter(version)
    [line] = parse_line(writer.ib_completion(PROC, "10.1.0.2", 12).lstrip("\n"))
    found = classify(line)
    assert found is not None
    assert (found["fault"], found["status"], found["tier"]) == ("ib_error", 12, 2)
    assert found.get("peer_host") == (None if version < (2, 10, 0) else "10.1.0.2")
    if version >= (2, 22, 0):
        assert found["nic"] == "mlx5_1"
    [event] = parse_line(writer.port_error(PROC).lstrip("\n"))
    port = classify(event)
    assert port is not None
    assert (port["fault"], port["tier"]) == ("port_error", 1)


def test_the_status_of_a_completion_tells_a_fault_from_what_follows() -> None:
    form = "NET/IB: Got completion from peer 10.1.0.2<4> with status={} opcode=0 len=0 vendor err 81 (Recv)"
    by_status = {status: fields(form.format(status)) for status in (4, 5, 10, 12, 13)}
    assert {s: (f or {})["tier"] for s, f in by_status.items()} == {4: 1, 5: 3, 10: 2, 12: 2, 13: 2}


def test_a_gid_is_the_peer_where_no_name_is() -> None:
    found = fields(
        "Call to ibv_modify_qp failed with 110 timed out, on dev mlx5_2:1, curr state INIT, next state RTR, "
        "local GID index 3, local GID ::ffff:10.0.0.1, remote GID ::ffff:10.0.0.9"
    )
    assert found is not None
    assert (found["fault"], found["peer_host"], found["nic"]) == ("connect", "10.0.0.9", "mlx5_2:1")


def test_what_is_no_fault() -> None:
    assert fields("NET/IB : mlx5_0:1 Got non-fatal async event: client reregistration(17)") is None
    assert fields("NET/IB : Got async event : GID table change") is None
    assert fields("Channel 00/08 : 0 1 2 3", level="INFO") is None
    assert fields("Connection closed by remote peer node5<1>", level="INFO") is None
    retry = fields(
        "socketPollConnect: connect returned Connection refused, retrying (1/34) after sleep for 100 msec",
        "INFO",
    )
    assert retry is not None and (retry["fault"], retry["tier"]) == ("connect", 3)


@pytest.mark.parametrize(
    "message", ["init.cc:1501 -> 3", "init.cc:1501 -> 2x", "Channel 00/1 : 0[0] -> 1[1] via P2P"]
)
def test_other_results_of_a_trace_back_name_no_fault(message: str) -> None:
    [line] = parse_line(f"node1:77:78 [2] NCCL INFO {message}")
    assert classify(line) is None


def test_a_long_message_takes_linear_time() -> None:
    begin = time.process_time()
    fields("NET/IB event " * 5_000)
    fields("connect to " * 6_000)
    assert time.process_time() - begin < 1


def test_a_line_that_repeats_its_words_takes_no_longer() -> None:
    begin = time.process_time()
    for words in ("NET/IB event ", "NET/IB ", "event ", "NET/IB : Got async "):
        [line] = parse_line("n1:1:1 [0] x.cc:1 NCCL WARN " + words * 160)
        classify(line)
    assert time.process_time() - begin < 2


def test_an_exception_that_passes_on_what_nccl_reports_is_no_death(tmp_path: Path) -> None:
    warned = [
        f"gpu-b:517{n}:529{n} [{n}] transport/net_socket.cc:488 NCCL WARN NET/Socket : peer 10.21.0.4<4311{n}> message truncated : receiving 4 bytes instead of 2."
        for n in (0, 1)
    ]
    error = "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2395, invalid usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.20.5"
    verdict = judged(told(tmp_path, [*warned, *raised(8, error)]))
    assert (verdict.cause, verdict.culprit_ranks) == ("collective_mismatch", ())
    assert "4 bytes where it expected 2" in verdict.explanation
