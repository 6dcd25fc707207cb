"""What `hangscope run` costs a healthy job, on a machine that need not be quiet.

    python benchmarks/overhead.py [--ranks 2] [--starts 20] [--pairs 60] [--steps 4] [--lines 0]
    python benchmarks/overhead.py --memory [--starts 20] [--pairs 60]

The same gloo job runs twice at once, alone and under `hangscope run`, and the two take turns: while one computes a block
of steps the other waits, for both blocks of a pair, and for both starts, in random order. What disturbs the machine so falls on both alike, and
the differences of pairs tell what is left; their interval is a bootstrap's over starts, as each start places processes and memory anew. That bounds all costs, indirect ones
too. The CPU time of what hangscope itself runs is read from the clocks of its threads, which no noise touches: the agent's thread in
each rank (of the time of the rank by the clock), and the two processes of `hangscope run`, the supervisor and the watcher. The start of
the interpreter is no part of it. A quarter of an hour. `--memory` compares the memory that a rank holds after the last block instead, with what
the allocator keeps of freed tensors returned first: how much that is differs by tens of MB from start to start, also without hangscope.
`| python docs/refresh.py overhead` (or `memory`) puts the table into docs/capture.md.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = """
import ctypes, os, socket, sys, threading, time, torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
weights, steps, lines = torch.randn(768, 768), int(sys.argv[1]), int(sys.argv[2])
agents = [thread.native_id for thread in threading.enumerate() if thread.name == "hangscope"]

def agent_seconds():
    return sum(int(open(f"/proc/self/task/{each}/schedstat").read().split()[0]) for each in agents) / 1e9

def block():
    cpu, wall, agent = time.process_time(), time.perf_counter(), agent_seconds()
    for step in range(steps):
        for _ in range(4):  # buckets of gradients
            dist.all_reduce(weights @ weights / 768)
        for line in range(lines):
            print("line", line, 90 * "-")
    print("step", step, flush=True)
    if sys.argv[3:]:
        ctypes.CDLL(None).malloc_trim(0)
    return [time.process_time() - cpu, time.perf_counter() - wall, agent_seconds() - agent]

def asked(first):
    go = torch.tensor([first])
    dist.broadcast(go, 0)
    return bool(go)

block()
if dist.get_rank():
    while asked(0):
        dist.reduce(torch.tensor(block(), dtype=torch.float64), 0)
else:
    line = socket.socket(socket.AF_UNIX)
    line.connect(os.environ["OVERHEAD_LINE"])
    line.sendall(b"ready\\n")
    while asked(int(line.recv(1) == b"g")):
        used = torch.tensor(block(), dtype=torch.float64)
        dist.reduce(used, 0)
        line.sendall((" ".join(map(repr, used.tolist())) + "\\n").encode())
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Block:
    """The seconds that one block took: of CPU and by the clock, both summed over ranks, and of the agent's threads."""

    cpu: float
    wall: float
    agent: float


#: The blocks of each pair: alone, and under `hangscope run`.
Rows = Sequence[tuple[Block, Block]]


class Job:
    """One of the two jobs; it computes when it is asked to."""

    def __init__(self, watched: bool, asked: argparse.Namespace, cleanup: ExitStack) -> None:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory())
        Path(folder, "train.py").write_text(TRAIN)
        listener = cleanup.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"{folder}/line")
        listener.listen(1)
        listener.settimeout(120)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={asked.ranks}"]
        command += [
            "--master-addr=127.0.0.1",
            f"--master-port={port}",
            "train.py",
            str(asked.steps),
            str(asked.lines),
        ]
        command += ["trim"] * asked.memory
        if watched:
            command = [sys.executable, "-m", "hangscope", "run", "--hang-timeout", "600", "--", *command]
        self._process = cleanup.enter_context(
            subprocess.Popen(
                command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                     "GLOO_SOCKET_IFNAME": "lo", "OVERHEAD_LINE": f"{folder}/line"},
            )
        )  # fmt: skip
        cleanup.callback(self._process.terminate)  # before it is waited for; it has ended where all went well
        self._line = cleanup.enter_context(listener.accept()[0])
        self._answers = cleanup.enter_context(self._line.makefile())
        assert self._answers.readline() == "ready\n"

    def block(self) -> Block:
        """Let it compute one block."""
        self._line.sendall(b"g")
        cpu, wall, agent = map(float, self._answers.readline().split())
        return Block(cpu, wall, agent)

    def own_seconds(self) -> float:
        """Return the CPU seconds that hangscope's processes have used so far: the command itself and its watcher."""
        seconds = 0.0
        for pid in (self._process.pid, *self._below(self._process.pid)):
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            if pid == self._process.pid or b"hangscope.live.watch.watcher" in command:
                tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
                seconds += sum(int(task.read_text().split()[0]) for task in tasks) / 1e9
        return seconds

    @staticmethod
    def _below(pid: int) -> list[int]:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def memory(self) -> list[float]:
        """Return the resident memory of each rank, in MB."""
        found, pids = [], [self._process.pid]
        for pid in pids:  # grows
            pids += self._below(pid)
            if b"\0train.py\0" in Path(f"/proc/{pid}/cmdline").read_bytes() and not self._below(pid):
                status = Path(f"/proc/{pid}/status").read_text().splitlines()
                found += [int(line.split()[1]) / 1000 for line in status if line.startswith("VmRSS:")]
        return found

    def end(self) -> None:
        """Let it end by itself."""
        self._line.sendall(b"q")
        self._process.wait(60)


def interval(starts: Sequence[Rows], value: Callable[[Rows], float]) -> tuple[float, float, float]:
    """Return a value of all pairs, and the bounds of its 95% bootstrap interval over starts of the two jobs."""
    chance = random.Random(1)
    drawn = (chance.choices(starts, k=len(starts)) for _ in range(1000))
    again = sorted(value([row for rows in each for row in rows]) for each in drawn)
    return value([row for rows in starts for row in rows]), again[25], again[-26]


def difference(of: Callable[[Block], float]) -> Callable[[Rows], float]:
    """Return what gives the mean of how much more the second block of a pair took than the first, in percent.

    The tenth of the pairs at either end, those that something else disturbed, is left out.
    """

    def mean(rows: Rows) -> float:
        ratios = sorted(math.log(of(under) / of(alone)) for alone, under in rows)
        cut = len(ratios) // 10
        return 100 * math.expm1(statistics.mean(ratios[cut : len(ratios) - cut]))

    return mean


def agent_share(rows: Rows) -> float:
    """Return the agent's CPU time as a part of the time of watched ranks, in percent."""
    return 100 * sum(under.agent for _, under in rows) / sum(under.wall for _, under in rows)


def measured(asked: argparse.Namespace, chance: random.Random) -> tuple[Rows, float]:
    """Start both jobs once; return their blocks and the CPU seconds of hangscope's processes."""
    rows: list[tuple[Block, Block]] = []
    with ExitStack() as cleanup:
        begun = {watched: Job(watched, asked, cleanup) for watched in chance.sample([False, True], 2)}
        alone, under = begun[False], begun[True]
        runner = 0.0
        for _ in range(asked.pairs):
            taken: dict[Job, Block] = {}
            for job in chance.sample([alone, under], 2):
                before = under.own_seconds()
                taken[job] = job.block()
                if job is under:
                    runner += under.own_seconds() - before
            rows.append((taken[alone], taken[under]))
        for job in (alone, under):
            job.end()
    return rows, runner


def held(asked: argparse.Namespace) -> float:
    """Start both jobs once; return how much more memory (MB) a rank of the watched one holds at last."""
    with ExitStack() as cleanup:
        alone, under = jobs = tuple(Job(watched, asked, cleanup) for watched in (False, True))
        for job in jobs * asked.pairs:
            job.block()
        more = statistics.mean(under.memory()) - statistics.mean(alone.memory())
        for job in jobs:
            job.end()
    return more


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--starts", type=int, default=20, help="of both jobs")
    parser.add_argument("--pairs", type=int, default=60, help="of blocks, for each start")
    parser.add_argument("--steps", type=int, default=4, help="of a block of some tenths of a second")
    parser.add_argument(
        "--lines", type=int, default=0, help="of 100 characters that each rank prints in a step"
    )
    parser.add_argument("--memory", action="store_true", help="compare what ranks hold instead")
    asked = parser.parse_args()
    (memory if asked.memory else time)(asked)


def memory(asked: argparse.Namespace) -> None:
    """Print how much more memory a rank holds under `hangscope run`."""
    more = [held(asked) for _ in range(asked.starts)]
    around = 2 * statistics.stdev(more) / math.sqrt(len(more))
    mean, calls = statistics.mean(more), 4 * asked.steps * asked.pairs
    printed = f" and {asked.pairs * asked.steps * asked.lines / 1e4:.0f} MB of output" if asked.lines else ""
    print(
        f"| memory of a rank, {asked.starts} starts | more | 95% interval |\n| --- | ---: | ---: |\n"
        f"| after {calls} collectives{printed} | {mean:+.1f} MB | {mean - around:+.1f} to {mean + around:+.1f} MB |"
    )


def time(asked: argparse.Namespace) -> None:
    """Print what `hangscope run` costs of a job's time."""
    chance = random.Random(0)
    found = [measured(asked, chance) for _ in range(asked.starts)]
    starts = [rows for rows, _ in found]
    wall = sum(under.wall for rows in starts for _, under in rows)
    block = statistics.median(b.wall for rows in starts for pair in rows for b in pair) / asked.ranks
    print(
        f"{asked.starts} starts of both jobs, {asked.pairs} pairs of blocks each, a block of {1000 * block:.0f} ms"
    )
    print("| what `hangscope run` costs | of the job's time | 95% interval |\n| --- | ---: | ---: |")
    told = (
        ("CPU time of the agent in the ranks, by its own clock", *interval(starts, agent_share)),
        ("CPU time of the ranks, paired with the job alone", *interval(starts, difference(lambda b: b.cpu))),
        ("time of a step, paired with the job alone", *interval(starts, difference(lambda b: b.wall))),
    )
    for what, value, low, high in told:
        print(f"| {what} | {value:+.2f}% | {low:+.2f}% to {high:+.2f}% |")
    runner = 100 * sum(each for _, each in found) / wall
    print(f"| CPU time of `hangscope run` and its watcher, by their own clocks | {runner:+.2f}% | |")


if __name__ == "__main__":
    main()
