"""Who is which process, and what the kernel says of processes and devices."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from hangscope.events import Event
from hangscope.ingest.workers.log_reading import read_log
from tests.text_lines import at, c10, known_fields, short, told


def read(*lines: str) -> list[Event]:
    return read_log(io.BytesIO(("\n".join(lines) + "\n").encode()), "job.log").events


@pytest.mark.parametrize(
    "line",
    [
        "launcher: started rank 6 pid 41206",
        "pid 41206 -> rank 6",
        "rank=6 pid=41206",
        "Rank 6 (host b2) runs as PID 41206",
        "[rank 6] PID: 41206",
        "rank 6 is process id 41206",
        "[rank6]: pid 41206",
        "(RayTrainWorker pid=41206, ip=10.0.0.6) [rank6]: loaded",
    ],
)
def test_a_line_tells_which_process_a_rank_is(line: str) -> None:
    assert [(e.rank, e.pid) for e in read(line, line) if e.kind == "spawned"] == [(6, 41206)]


@pytest.mark.parametrize(
    "line",
    [
        "local rank 6 pid 41206",
        "rank 6 killed pid 41206",
        "rank 6 waits for pid 41206",
        "[rank6]: pid 41206 does not answer",
        "rank 6: worker 3, pid of its parent 41206",
    ],
)
def test_another_process_is_not_the_rank(line: str) -> None:
    assert [e for e in read(line) if e.kind == "spawned"] == []


def test_a_driver_s_word_on_a_process_is_of_the_rank_that_it_was_started_as(tmp_path: Path) -> None:
    lines = [f"started rank {rank} pid {7100 + rank}" for rank in range(4)]
    lines += ["kernel: NVRM: Xid (PCI:0000:41:00): 95, pid=7102, name=python3, Uncontained ECC error."]
    assert short(told(tmp_path, lines))[:2] == ("gpu_stall", (2,))


def test_stacks_are_of_the_ranks_that_ray_s_prefixes_tell(tmp_path: Path) -> None:
    def stack(pid: int, frame: str) -> str:
        return f'Process {pid}: ray::Train.get_next()\n\nThread {pid} (idle): "MainThread"\n    {frame}\n    loop (fit.py:9)\n\n'

    log = [f"(TrainWorker pid={50 + rank}, ip=10.0.0.1) [rank{rank}]: ready" for rank in range(3)]
    stacks = [
        stack(
            50 + rank,
            "read (blob.py:7)" if rank == 1 else "all_reduce (torch/distributed/distributed_c10d.py:2810)",
        )
        for rank in range(3)
    ]
    assert short(told(tmp_path, {"driver.log": log, "stacks.txt": "".join(stacks)}))[:2] == (
        "stuck_rank",
        (1,),
    )


def test_a_process_without_memory_for_nccl_is_the_rank_of_its_communicator(tmp_path: Path) -> None:
    lines = [
        f"b2:{90 + rank}:{95 + rank} [{rank}] NCCL INFO comm 0x77{rank}0 rank {rank} nranks 2 cudaDev {rank} busId {rank + 1}000 - Init START"
        for rank in range(2)
    ]
    lines += ["b2:91:96 [1] include/alloc.h:190 NCCL WARN Failed to CUDA calloc 6291456 bytes"]
    assert short(told(tmp_path, lines)) == ("crashed_rank", (1,), "high")


def test_a_device_that_is_gone_is_told_over_several_lines(tmp_path: Path) -> None:
    lines = [
        "[ 8001.104] NVRM: The NVIDIA GPU 0000:41:00.0",
        "            NVRM: (PCI ID: 10de:2330) installed in this system has",
        "            NVRM: fallen off the bus and is not responding to commands.",
    ]
    assert [known_fields(e) for e in read(*lines) if e.kind == "xid"] == [
        {"code": 79, "device": "0000:41:00.0"}
    ]
    assert short(told(tmp_path, lines))[:2] == ("gpu_stall", ())


DOWN = "mlx5_core 0000:2a:00.0 ens6np0: Link down"


@pytest.mark.parametrize(
    ("lines", "count"),
    [
        (at(1, [DOWN]), 1),
        (at(1, [DOWN, DOWN.replace("down", "up")]), 0),
        ([f"[    4.20] {DOWN}"], 0),
        ([f"[ 8004.20] {DOWN}"], 1),
        (["docker0: port 2(veth1) entered disabled state, Link down"], 0),
    ],
)
def test_a_link_that_stays_down_is_a_fault_of_the_network(lines: list[str], count: int) -> None:
    assert [getattr(e, "fault", None) for e in read(*lines) if e.kind == "nccl_warn"] == [
        "port_error"
    ] * count


def test_an_error_of_a_port_explains_a_wait_and_names_nobody(tmp_path: Path) -> None:
    timeout = "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=6, OpType=ALLREDUCE, NumelIn=8, NumelOut=8, Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
    lines = [
        "h1:7:90 [0] NCCL INFO NET/IB : mlx5_1:1 Got non-fatal async event: port error(10)",
        c10(0, timeout),
    ]
    assert short(told(tmp_path, lines))[:2] == ("network_stall", ())


def test_where_several_got_no_memory_nobody_is_named(tmp_path: Path) -> None:
    lines = [
        f"b2:{90 + rank}:{95 + rank} [{rank}] NCCL INFO comm 0x77{rank}0 rank {rank} nranks 2 cudaDev {rank} busId {rank + 1}000 - Init START"
        for rank in range(2)
    ]
    lines += [
        f"b2:9{n}:9{n + 5} [{n}] include/alloc.h:190 NCCL WARN Failed to CUDA calloc 6291456 bytes"
        for n in (0, 1)
    ]
    assert short(told(tmp_path, lines))[1] == ()
