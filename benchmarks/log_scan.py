"""How fast a log with few matching lines is read, and that memory does not grow with it.

    python benchmarks/log_scan.py [--megabytes 2000]

Writes a training log with one c10d line per 10 MB to a temporary file, reads it with every parser, and prints as a table MB/s of
this process's CPU time and wall time and its peak resident memory; then the same for logs in which every line is a call, of DETAIL and of NCCL_DEBUG_SUBSYS=COLL.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

from hangscope.ingest.workers.reading import read_log

STEP = (
    "[default{local}]:2026-11-20 15:{minute:02}:{second:02} | INFO | trainer.py:412 | epoch 3 step {step} "
    "loss=2.{step:04} lr=3.0e-04 grad_norm=0.{second:03} tokens/s={step}93 eta 3 days\n"
)
TIMEOUT = (
    "[rank{rank}]:[E1120 15:13:44.220687360 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=58, NumelOut=58, Timeout(ms)=600000) ran for 600012 milliseconds\n"
)
CALL = (
    "[rank{rank}]:[I1120 15:13:24.220687360 ProcessGroupWrapper.cpp:710] [Rank {rank}] Running collective: CollectiveFingerPrint("
    "SequenceNumber={number}, OpType=ALLREDUCE, TensorShape=[58], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(dtype=float "
    "(default), device=cpu, layout=Strided (default), requires_grad=false (default), memory_format=(nullopt)))\n"
)


COLL = (
    "gpu{host:02}:{pid}:{pid} [{dev}] NCCL INFO {op}: opCount {number:x} sendbuff 0x7f4a2e{buffer:06x} recvbuff 0x7f4a2e{buffer:06x} "
    "count {count} datatype 9 op 0 root 0 comm 0x55d1c{dev}a0 [nranks=64] stream 0x55d1b77e0\n"
)
LIFE = "gpu{host:02}:{pid}:{pid} [{dev}] NCCL INFO ncclCommInitRank comm 0x55d1c{dev}a0 rank {rank} nranks 64 cudaDev {dev} nvmlDev {dev} busId {dev}b000 commId 0x77aa01 - Init COMPLETE\n"


def coll_log(path: Path, megabytes: int) -> None:
    """Write eight processes' NCCL call lines, a step of many sizes again and again."""
    ranks = [{"host": 3, "pid": 4100 + dev, "dev": dev, "rank": 24 + dev} for dev in range(8)]
    steps = [(op, 1 << size) for size in range(10, 22) for op in ("AllGather", "ReduceScatter", "AllReduce")]
    with path.open("wb") as file:
        written = file.write("".join(LIFE.format(**rank) for rank in ranks).encode())
        number = 0
        while written < megabytes * 10**6:
            text = [
                COLL.format(
                    op=op, count=count, number=number + n, buffer=(number + n) * 512 % (1 << 24), **rank
                )
                for n, (op, count) in enumerate(steps)
                for rank in ranks
            ]
            written += file.write("".join(text).encode())
            number += len(steps)


def sparse_log(path: Path, megabytes: int) -> None:
    block = "".join(
        STEP.format(local=i % 8, minute=i // 60 % 60, second=i % 60, step=i % 10_000) for i in range(64_000)
    ).encode()
    with path.open("wb") as file:
        written = 0
        while written < megabytes * 10**6:
            written += file.write(block)
            written += file.write(TIMEOUT.format(rank=written % 8, seq=written % 997).encode())


def dense_log(path: Path, megabytes: int) -> None:
    with path.open("wb") as file:
        number = written = 0
        while written < megabytes * 10**6:
            text = "".join(
                CALL.format(rank=rank, number=n) for n in range(number, number + 500) for rank in range(8)
            )
            written += file.write(text.encode())
            number += 500


def measure(name: str, path: Path) -> None:
    size = path.stat().st_size
    wall, cpu = time.perf_counter(), time.process_time()
    with path.open("rb") as stream:
        reading = read_log(stream, path.name)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    calls = sum(len(recording) for recording in (*reading.recordings, *reading.nccl))
    print(
        f"| {name} | {size / 1e6:,.0f} MB | {reading.lines:,} | {len(reading.events)} | {calls:,} "
        f"| {size / 1e6 / cpu:,.0f} MB/s | {size / 1e6 / wall:,.0f} MB/s | {peak:,.0f} MiB |",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--megabytes", type=int, default=1000, help="size of the sparse log (default: %(default)s)"
    )
    megabytes = parser.parse_args().megabytes
    print("| log | size | lines | events | calls | of CPU time | of wall time | peak memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "sparse.log"
        sparse_log(path, 50)
        with path.open("rb") as stream:
            read_log(stream, path.name)  # the first pass pays for what is made once
        sparse_log(path, megabytes)
        measure("few lines that match", path)
        dense_log(path, max(1, megabytes // 20))
        measure("every line a call of DETAIL", path)
        coll_log(path, max(1, megabytes // 20))
        measure("every line a call of NCCL (COLL)", path)


if __name__ == "__main__":
    main()
