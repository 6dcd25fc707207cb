"""Input that costs more than its size: `python benchmarks/growth.py` prints the cost of each kind at three doubled sizes.

Each kind once took time out of proportion. Costs are processor seconds of one analysis in this process; docs/safety.md has the table.
"""

from __future__ import annotations

import os
import pickle
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import hangscope
from tests.dump_writer import stuck, write_all
from tests.in_thread import InThisThread


def links_to_itself(folder: Path, size: int) -> None:
    """A folder with `size` links to itself."""
    (folder / "rank0.log").write_text("step 1\n")
    for number in range(size):
        os.symlink(".", folder / f"link{number}")


def watchdogs(folder: Path, size: int) -> None:
    """One log with a watchdog timeout of each of `size` ranks."""
    line = (
        "[rank{0}]:[E1103 09:14:55.941470251 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=3012, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600042 milliseconds before timing out.\n"
    )
    (folder / "job.log").write_text("".join(line.format(rank) for rank in range(size)))


def failure_table(folder: Path, size: int) -> None:
    """torchrun's table of `size` failed ranks."""
    rule, row = (
        "=" * 60,
        (
            "[{0}]:\n  time      : 2026-05-30_10:00:{1:02d}\n  host      : gpu-3\n  rank      : {0} (local_rank: 0)\n"
            "  exitcode  : {2} (pid: {3})\n  error_file: <N/A>\n  traceback : Signal 9 (SIGKILL) received by PID {3}\n"
        ),
    )
    rows = "".join(row.format(rank, 34, -9, 50_000 + rank) for rank in range(1, size))
    first = row.format(0, 4, 1, 50_000)
    (folder / "job.log").write_text(
        f"{rule}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{rows}{'-' * 60}\nRoot Cause (first observed failure):\n{first}{rule}\n"
    )


def tracebacks(folder: Path, size: int) -> None:
    """One log in which each of `size` ranks prints a step and a traceback."""
    lines = (
        "[rank{0}] step {0} loss 1.{0}\n[rank{0}]: Traceback (most recent call last):\n"
        '[rank{0}]:   File "/workspace/train.py", line {1}, in step\n[rank{0}]:     run()\n[rank{0}]: ValueError: bad {0}\n'
    )
    (folder / "job.log").write_text("".join(lines.format(rank, rank + 5) for rank in range(size)))


def counters(folder: Path, size: int) -> None:
    """Dumps of eight ranks of which one claims to have enqueued `size` * 1000 collectives."""
    write_all(stuck(8, culprit=3), folder)
    path = folder / "nccl_trace_rank_5"
    dump = pickle.loads(path.read_bytes())  # our own file
    for status in dump.get("pg_status", {}).values():
        status["last_enqueued_collective"] = size * 1000
    path.write_bytes(pickle.dumps(dump, protocol=2))


def implied_groups(folder: Path, size: int) -> None:
    """One log of DETAIL in which the same call comes again `size` times: each time it is of another group."""
    line = (
        "[rank1]:[I1102 19:05:51.300711023 ProcessGroupWrapper.cpp:710] [Rank 1] Running collective: "
        "CollectiveFingerPrint(SequenceNumber=9, OpType=ALLGATHER, TensorShape=[1], TensorDtypes=Long, "
        "TensorDeviceTypes=TensorOptions(dtype=float (default), device=cpu, layout=Strided (default), requires_grad=false "
        "(default), pinned_memory=false (default), memory_format=(nullopt)))\n"
    )
    (folder / "job.log").write_text(line * size)


def sparse_log(folder: Path, size: int) -> None:
    """A log with a hole of `size` gigabytes between its lines."""
    with (folder / "rank0.log").open("wb") as log:
        log.write(b"[rank0]: step 1\n")
        log.seek(size << 30)
        log.write(b"\n[rank0]: step 2\n")


KINDS: dict[str, tuple[Callable[[Path, int], None], int]] = {
    "links of a folder to itself": (links_to_itself, 2000),
    "ranks with a watchdog timeout in one log": (watchdogs, 4000),
    "ranks in torchrun's failure table": (failure_table, 4000),
    "ranks with a traceback in one log": (tracebacks, 2000),
    "thousands that a counter is ahead": (counters, 250),
    "groups that the calls in one log imply": (implied_groups, 4000),
    "gigabytes of a hole in a log": (sparse_log, 2),
}


def cost(make: Callable[[Path, int], None], size: int) -> float:
    """Return the processor seconds of one analysis."""
    with tempfile.TemporaryDirectory(prefix="hangscope-growth-") as scratch:
        make(Path(scratch), size)
        began = time.process_time()
        hangscope.analyze(scratch, executor=InThisThread())
        return time.process_time() - began


def main() -> None:
    """Print the table."""
    cost(watchdogs, 8)  # imports and caches
    print("| what grows | size | seconds | twice | seconds | four times | seconds |")
    print(f"| --- |{' ---: |' * 6}")
    for name, (make, size) in KINDS.items():
        cells = [cell for n in (size, 2 * size, 4 * size) for cell in (f"{n:,}", f"{cost(make, n):.1f}")]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
