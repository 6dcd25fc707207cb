from __future__ import annotations

import json

from hangscope.ingest.nccl import ras_json
from tests.text_lines import known_fields


def row(
    rank: int, number: int, *, coll: str = "AllReduce", comm: str = "0xab34", version: str = "v4.0"
) -> bytes:
    return (
        json.dumps(
            {
                "header": {"id": comm, "rank": rank, "n_ranks": 4, "nnodes": 1},
                "metadata": {
                    "inspector_output_format_version": version,
                    "dump_timestamp_us": 1,
                    "hostname": "n0",
                    "pid": 100 + rank,
                },
                "coll_perf": {
                    "coll": coll,
                    "coll_sn": number,
                    "coll_msg_size_bytes": 65536,
                    "coll_exec_time_us": 20,
                },
            }
        ).encode()
        + b"\n"
    )


def p2p(rank: int, peer: int, number: int) -> bytes:
    perf = {"p2p": "Send", "p2p_sn": number, "p2p_peer": peer, "p2p_msg_size_bytes": 65536}
    return (
        json.dumps(
            {"header": {"id": "0xab34", "rank": rank, "n_ranks": 4}, "metadata": {"pid": 1}, "p2p_perf": perf}
        ).encode()
        + b"\n"
    )


def test_the_last_completed_call_per_operation() -> None:
    lines = [row(1, 3), row(1, 4), row(1, 2, coll="AllGather"), p2p(1, 2, 9), p2p(1, 3, 8)]
    found, notes = ras_json.read_inspector_lines(lines, "n0-pid101.log")
    assert notes == []
    assert [(r.op, r.count, r.line) for r in found] == [("all_gather", 2, 3), ("all_reduce", 4, 2)]
    event = found[1]
    assert (event.kind, event.host, event.pid, event.group_rank) == ("nccl_ras", "n0", 101, 1)
    assert known_fields(event) == {
        "what": "completed",
        "comm": "0xab34",
        "comm_rank": 1,
        "op": "all_reduce",
        "count": 4,
        "nranks": 4,
    }


def test_only_numbers_of_collectives_compare_across_ranks() -> None:
    found = []
    for rank, number in enumerate([12, 12, 9, 12]):
        found += ras_json.read_inspector_lines(
            [row(rank, n) for n in range(1, number + 1)], f"n0-pid{rank}.log"
        )[0]
    found += ras_json.read_inspector_lines([p2p(2, 1, 9)], "n0-pid2.log")[0]
    assert [(r.comm_rank, r.count) for r in found] == [
        (0, 12),
        (1, 12),
        (2, 9),
        (3, 12),
    ]


def test_cut_and_foreign_lines() -> None:
    found, notes = ras_json.read_inspector_lines(
        [row(0, 1), row(0, 2)[:50], b"\n", b"[]\n", b"\xff\xfe\n", b"{" * 70_000], "x"
    )
    assert [r.count for r in found] == [1]
    assert [(n.code, n.line) for n in notes] == [("truncated", 2)]
    assert notes[0].message.startswith("4 lines")
    wrong = json.dumps({"header": {"id": 5, "rank": True}, "coll_perf": {"coll": 1, "coll_sn": "x"}}).encode()
    assert ras_json.read_inspector_lines([wrong], "x")[0] == []
    assert ras_json.read_inspector_lines([], "x") == ([], [])
