from __future__ import annotations

import json
import random
from typing import Any

import pytest

from hangscope.errors import Note
from hangscope.ingest.files.sniff import sniff
from hangscope.ingest.nccl.ras_json import NcclRas, read_json
from hangscope.ingest.nccl.ras_text import read_text


def read(data: bytes, file: str) -> tuple[list[NcclRas], list[Note]]:
    text = data.decode("utf-8", "replace")
    return read_json(text, file) if text.lstrip()[:1] == "{" else read_text(text, file)


HEAD = (
    "NCCL version {} compiled with CUDA 12.6\nCUDA runtime version 12060, driver version 12060\n\n"
    "Job summary\n===========\n\n"
)


def text_snapshot(version: str, *, count: int = 40) -> str:
    old = version < "2.26"
    what = "collective" if old else "AllReduce"
    where = " -- GPU 3 managed by process 4242 on node 10.0.0.7"
    missing = "  The missing rank: 5" if old else "  Rank 5 -- GPU 5 managed by process 4300 on node 10.0.0.7"
    return (
        HEAD.format(version)
        + "Errors\n======\n\nDEAD\n  1 job process is considered dead (unreachable via the RAS network)\n"
        + "  Process 4300 on node 10.0.0.7 managing GPU 5\n\n"
        + "#0-0 (00ab34cd56ef7812) INCOMPLETE\n  Missing communicator data from 1 rank\n"
        + missing
        + "\n\nWarnings\n========\n\n#0-0 (00ab34cd56ef7812) MISMATCH\n"
        + f"  Communicator ranks have different {what} operation counts\n"
        + "  14 ranks have launched up to operation 41\n"
        + f"  1 rank has launched up to operation {count}\n"
        + f"  Rank 3 has launched up to operation {count}{where}\n"
    )


@pytest.mark.parametrize("version", ["2.24.3", "2.25.1", "2.26.2", "2.30.7"])
def test_text_of_every_release(version: str) -> None:
    data = text_snapshot(version).encode()
    assert sniff(data) == "ras_text"
    events, notes = read(data, "ras.txt")
    assert notes == []
    found = [(e.what, e.group_rank, e.pid, e.count, e.op) for e in events]
    op = None if version < "2.26" else "all_reduce"
    missing_pid = None if version < "2.26" else 4300
    assert found == [
        ("dead", None, 4300, None, None),
        ("missing", 5, missing_pid, None, None),
        ("behind", 3, 4242, 40, op),
    ]
    assert {e.comm for e in events[1:]} == {"0xab34cd56ef7812"}
    assert all(e.kind == "nccl_ras" and e.text in data.decode() for e in events)


def test_the_ranks_listed_may_be_the_ones_ahead() -> None:
    data = text_snapshot("2.26.2", count=42)
    events, _ = read(data.encode(), "ras.txt")
    found = [(e.what, e.group_rank, e.count, e.ranks) for e in events][2:]
    assert found == [("ahead", 3, 42, None), ("behind", None, 41, 14)]


def test_several_ranks_are_listed_below_the_count_that_they_have_in_common() -> None:
    listed = "".join(f"  Rank {r} -- GPU {r} managed by process 4{r} on node n1\n" for r in (3, 5))
    data = (
        HEAD.format("2.27.5")
        + "Warnings\n========\n\n#0-0 (00ab34cd56ef7812) MISMATCH\n"
        + "  Communicator ranks have different AllReduce operation counts\n"
        + "  14 ranks have launched up to operation 41\n  2 ranks have launched up to operation 40\n"
        + listed
        + "  1 rank has status ABORT\n  Rank 6 -- GPU 6 managed by process 46 on node n1\n"
    )
    events, _ = read(data.encode(), "ras.txt")
    found = [(e.what, e.group_rank, e.pid, e.count) for e in events]
    assert found == [("behind", 3, 43, 40), ("behind", 5, 45, 40)]


def test_other_text_lines() -> None:
    data = (
        HEAD.format("2.27.3")
        + "#1-0 (1f) MISMATCH\n  Communicator ranks have different status\n  7 ranks have status RUNNING\n"
        + "  Rank 2 has status ABORT -- GPU 2 managed by process 7 on node n2\n\n"
        + "#1-0 (1f) ERROR\n  Asynchronous error reported on 1 rank\n"
        + "  Rank 2 reported ncclRemoteError -- GPU 2 managed by process 7 on node n2\n\n"
        + "#1-1 (2f) MISMATCH\n  Communicator ranks have different Broadcast operation counts\n"
        + "  3 ranks have launched up to operation 5\n  1 rank has not launched any operations\n"
        + "  Rank 0 has not launched any operations -- GPU 0 managed by process 5 on node n1\n"
        + "[2026-03-04 10:00:00] PEER_DEAD: Process 9 on node n3 managing GPU 1\n"
    )
    events, _ = read(data.encode(), "r")
    found = [(e.what, e.group_rank, e.host, e.status or e.result) for e in events]
    assert found == [
        ("status", 2, "n2", "ABORT"),
        ("error", 2, "n2", "ncclRemoteError"),
        ("dead", None, "n3", None),
        ("behind", 0, "n1", None),
    ]


def json_snapshot(
    counts: list[int], *, stamp: str = "2026-03-04 10:00:00", missing: bool = False
) -> dict[str, Any]:
    def rank(r: int) -> dict[str, Any]:
        return {"rank": r, "host": "n0", "pid": 100 + r, "cuda_dev": r, "nvml_dev": r}

    fine = {
        "init_state": 0,
        "async_error": 0,
        "finalize_called": False,
        "destroy_flag": False,
        "abort_flag": False,
    }
    ranks = [
        {
            **rank(r),
            "status": fine,
            "collective_counts": {
                "Broadcast": 1,
                "Reduce": 0,
                "AllGather": 0,
                "ReduceScatter": 0,
                "AllReduce": n,
            },
        }
        for r, n in enumerate(counts)
    ]
    gone = (
        [{**rank(len(counts)), "status": {"unresponsive": True, "considered_dead": True}}] if missing else []
    )
    size = len(counts) + len(gone)
    comm = {
        "hash": "0xab34", "secondary_hash": "0x1:0x2", "size": size, "ranks_count": len(counts),
        "missing_ranks_count": len(gone), "ranks": ranks, "missing_ranks": gone,
    }  # fmt: skip
    return {
        "nccl_version": "2.28.9", "cuda_runtime_version": 12060, "cuda_driver_version": 12060,
        "timestamp": stamp, "communicators_count": 1, "communicators": [comm],
        "ras": {"collection_time_sec": 0.1, "timeouts_count": 0},
    }  # fmt: skip


def test_json_names_every_rank_behind_with_its_global_rank() -> None:
    data = json.dumps(json_snapshot([41, 41, 40, 41]), indent=2).encode()
    events, notes = read(data, "ras.json")
    [event] = events
    assert (event.rank, event.group_rank, event.host, event.pid) == (2, 2, "n0", 102)
    assert {k: getattr(event, k) for k in ("what", "op", "count", "most", "comm")} == {
        "what": "behind", "op": "all_reduce", "count": 40, "most": 41, "comm": "0xab34",
    }  # fmt: skip
    assert notes == []


def test_broken_json_of_2_28_is_repaired() -> None:
    broken = json.dumps(json_snapshot([41, 41], missing=True), indent=2)
    broken = broken.replace('"nvml_dev": 2,\n', '"nvml_dev": 2\n')
    with pytest.raises(ValueError):
        json.loads(broken)
    events, notes = read(broken.encode(), "ras.json")
    assert [n.code for n in notes] == ["repaired_json"]
    assert [(e.what, e.group_rank, e.rank) for e in events] == [("dead", 2, 2)]


def test_ranks_still_initializing_or_in_error() -> None:
    value = json_snapshot([1, 1])
    value["communicators"][0]["ranks"][0]["status"] = {"init_state": 7, "async_error": 7}
    value["communicators"][0]["ranks"][1]["status"] = {"init_state": 2, "async_error": 6}
    events, _ = read(json.dumps(value).encode(), "r")
    found = [(e.what, e.group_rank, e.result) for e in events]
    assert found == [("initializing", 0, 7), ("error", 1, 2), ("error", 1, 6)]


def test_monitor_events() -> None:
    line = {
        "timestamp": "t",
        "group": "LIFECYCLE",
        "event": "PEER_DEAD",
        "peer": {"host": "n1", "pid": 7, "cuda_devs": [0]},
        "details": "",
    }
    data = json.dumps(line).encode()
    events, _ = read(data, "r")
    assert [(e.what, e.host, e.pid) for e in events] == [("dead", "n1", 7)]


def test_many_behind_are_counted() -> None:
    events, _ = read(json.dumps(json_snapshot([9] + [8] * 400)).encode(), "r")
    assert len(events) == 257
    assert events[-1].ranks == 144


def test_truncated_and_other_files() -> None:
    data = json.dumps(json_snapshot([41, 40]), indent=2).encode()
    events, notes = read(data[:-40], "r")
    assert events == [] and [n.code for n in notes] == ["truncated"]
    cut, _ = read(text_snapshot("2.26.2")[:-120].encode(), "r")
    assert {e.what for e in cut} >= {"dead", "missing"}
    assert sniff(b"node0:1:1 [0] NCCL INFO NCCL version 2.26.2") == "log"
    assert read(b"", "r") == ([], [])
    assert read(b"[" * 100_000, "r")[0] == []
    assert read(b'{"a":' * 100_000, "r")[1][0].code == "truncated"


def test_any_bytes_are_survived() -> None:
    chance = random.Random(3)
    for source in (text_snapshot("2.26.2"), json.dumps(json_snapshot([41, 40], missing=True), indent=2)):
        for _ in range(200):
            data = bytearray(source.encode())
            for _ in range(20):
                data[chance.randrange(len(data))] = chance.randrange(256)
            read(bytes(data), "r")
    odd = json_snapshot([1, 2])
    odd["communicators"] = [
        None,
        {
            "ranks": [None, {"rank": "x", "collective_counts": [], "status": 5}],
            "size": "y",
            "missing_ranks": 4,
        },
    ]
    assert read(json.dumps(odd).encode(), "r")[0] == []
