from __future__ import annotations

import io

import pytest

from hangscope.ingest.workers.reading import read_log

CASES = [
    (
        "torch.distributed.DistStoreError: Timed out after 7 seconds waiting for clients. 2/3 clients joined.",
        "store_timeout",
        {"joined": 2, "expected": 3},
    ),
    (
        "torch.distributed.DistStoreError: wait timeout after 6000ms, keys: /default_pg/0//cpu//0/2",
        "store_timeout",
        {"key": "/default_pg/0//cpu//0/2", "waited_rank": 2},
    ),
    (
        "[W1120 15:13:44.220687360 socket.cpp:469] [c10d] waitForInput: poll for socket SocketImpl(fd=3, addr=[a]:1, remote=[b]:2) returned 0, likely a timeout",
        "store_timeout",
        {"what": "no answer"},
    ),
    ("RuntimeError: Socket Timeout", "store_timeout", {"what": "no answer"}),
    (
        "torch.distributed.DistNetworkError: The client socket has timed out after 6000ms while trying to connect to (gpu01, 29500).",
        "store_unreachable",
        {"store_host": "gpu01", "port": 29500},
    ),
    (
        "RuntimeError: Gloo connectFullMesh failed with [/x/pair.cc:152] timed out connecting: SO_ERROR: Connection refused, remote=[10.0.0.7]:948",
        "store_unreachable",
        {"store_host": "10.0.0.7", "port": 948},
    ),
    (
        "RuntimeError: The server socket has failed to listen on any local network address. port: 29755, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "port_in_use",
        {"port": 29755},
    ),
    (
        "[W socket.cpp:436] [c10d] The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
        "port_in_use",
        {"port": 29500},
    ),
    (
        "RuntimeError: Timed out initializing process group in store based barrier on rank 2, for key: store_based_barrier_key:1 (world_size=32, worker_count=23, timeout=0:30:00)",
        "store_barrier",
        {"world_size": 32, "joined": 23},
    ),
    (
        "torch.distributed.DistStoreError: Timed out initializing process group in store based barrier on rank 2, for key: k (world_size=32, num_workers_joined=23, timeout=0:30:00 error: x)",
        "store_barrier",
        {"world_size": 32, "joined": 23},
    ),
    (
        "torch.distributed.elastic.rendezvous.api.RendezvousConnectionError: The connection to the C10d store has failed.",
        "rendezvous_timeout",
        {"what": "RendezvousConnectionError"},
    ),
    (
        "RuntimeError: DDP expects same model across all ranks, but Rank 0 has 4 params, while rank 2 has inconsistent 6 params.",
        "ddp_params",
        {"counts": {0: 4, 2: 6}},
    ),
    (
        "RuntimeError: [2]: params[0] in this process with sizes [16, 4] appears not to match sizes of the same param in process 0.",
        "ddp_shape",
        {"index": 0, "sizes": (16, 4)},
    ),
    ("Parameter indices which did not receive grad for rank 2: 4 5", "ddp_unused", {"indices": (4, 5)}),
    (
        "Parameters which did not receive grad for rank 2: unused.bias, unused.weight",
        "ddp_unused",
        {"names": ("unused.bias", "unused.weight")},
    ),
    (
        "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. This",
        "ddp_unfinished",
        {},
    ),
    (
        "RuntimeError: Forward order differs across ranks: rank 0 is all-gathering 1 parameters while rank 1 is all-gathering 0 parameters",
        "fsdp_order",
        {},
    ),
]


@pytest.mark.parametrize(("text", "kind", "fields"), CASES)
def test_each_line_becomes_its_event(text: str, kind: str, fields: dict[str, object]) -> None:
    reading = read_log(io.BytesIO(f"[default1]:[rank1]: {text}\n".encode()), "job.log")
    assert reading.notes == []
    (event,) = [event for event in reading.events if event.kind == kind]
    assert event.rank == 1
    assert {name: getattr(event, name) for name in fields} == fields


@pytest.mark.parametrize(("text", "kind", "fields"), CASES)
def test_a_cut_line_is_not_half_read(text: str, kind: str, fields: dict[str, object]) -> None:
    reading = read_log(io.BytesIO(text[: len(text) // 4].encode()), "job.log")
    assert [event.kind for event in reading.events if event.kind == kind] == []


def test_group_local_ranks_are_kept_apart() -> None:
    reading = read_log(
        io.BytesIO(
            b"[rank6]: Parameters which did not receive grad for rank 2: a\n[rank6]: RuntimeError: [2]: params[0] in this process with sizes [1] appears not to match sizes of"
        ),
        "a",
    )
    assert [(e.rank, e.group_rank) for e in reading.events if e.kind.startswith("ddp_")] == [(6, 2), (6, 2)]


def test_an_address_that_windows_tries_in_vain_is_no_unreachable_store() -> None:
    line = "[W socket.cpp:663] [c10d] The client socket has failed to connect to [PC]:29500 (system error: {0} - The requested address is not valid in its context.)."
    found = [read_log(io.BytesIO(line.format(code).encode()), "log").events for code in (10049, 10061)]
    assert [[e.kind for e in events if e.kind == "store_unreachable"] for events in found] == [
        [],
        ["store_unreachable"],
    ]
