"""What `hangscope run` costs a healthy job, on a machine that need not be quiet.

    python benchmarks/overhead.py [--ranks 2] [--pairs 300] [--steps 12]

The same gloo job runs twice at once, alone and under `hangscope run`, and the two take turns: while one computes a block
of steps the other waits, for both blocks of a pair in random order. What disturbs the machine so falls on both alike, and
the differences of pairs tell what is left; their interval is a bootstrap's over pairs. That bounds all costs, indirect ones
too. What hangscope's own threads use is read from their own clocks besides, which no noise touches: the agent's thread in
each rank, and the process of `hangscope run`. The start of the interpreter is no part of it. Three minutes;
`| python docs/refresh.py overhead` puts the table into docs/capture.md.
"""

from __future__ import annotations

import argparse
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
import os, socket, sys, threading, time, torch, torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
weights, steps = torch.randn(384, 384), int(sys.argv[1])
agents = [thread.native_id for thread in threading.enumerate() if thread.name == "hangscope"]

def agent_seconds():
    return sum(int(open(f"/proc/self/task/{each}/schedstat").read().split()[0]) for each in agents) / 1e9

def block():
    cpu, wall, agent = time.process_time(), time.perf_counter(), agent_seconds()
    for step in range(steps):
        for _ in range(4):  # buckets of gradients
            dist.all_reduce(weights @ weights / 384)
    print("step", step, flush=True)
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


class Job:
    """One of the two jobs; it computes when it is asked to."""

    def __init__(self, watched: bool, ranks: int, steps: int, cleanup: ExitStack) -> None:
        folder = cleanup.enter_context(tempfile.TemporaryDirectory())
        Path(folder, "train.py").write_text(TRAIN)
        listener = cleanup.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(f"{folder}/line")
        listener.listen(1)
        listener.settimeout(120)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
        command += ["--master-addr=127.0.0.1", f"--master-port={port}", "train.py", str(steps)]
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
        """Return the CPU seconds that the command itself has used so far, in all its threads."""
        tasks = Path(f"/proc/{self._process.pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def end(self) -> None:
        """Let it end by itself."""
        self._line.sendall(b"q")
        self._process.wait(60)


def interval(
    rows: Sequence[tuple[Block, Block]], value: Callable[[Sequence[tuple[Block, Block]]], float]
) -> tuple[float, float, float]:
    """Return a value of all pairs, and the bounds of its 95% bootstrap interval."""
    chance = random.Random(1)
    again = sorted(value(chance.choices(rows, k=len(rows))) for _ in range(2000))
    return value(rows), again[50], again[-51]


def difference(of: Callable[[Block], float]) -> Callable[[Sequence[tuple[Block, Block]]], float]:
    """Return what gives the median of how much more the second block of a pair took than the first, in percent."""
    return lambda rows: 100 * statistics.median(of(under) / of(alone) - 1 for alone, under in rows)


def agent_share(rows: Sequence[tuple[Block, Block]]) -> float:
    """Return the agent's part of the CPU time of watched ranks, in percent."""
    return 100 * sum(under.agent for _, under in rows) / sum(under.cpu for _, under in rows)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--pairs", type=int, default=300)
    parser.add_argument("--steps", type=int, default=12, help="of a block of some tenths of a second")
    asked = parser.parse_args()
    chance = random.Random(0)
    rows: list[tuple[Block, Block]] = []
    with ExitStack() as cleanup:
        alone, under = (Job(watched, asked.ranks, asked.steps, cleanup) for watched in (False, True))
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
    cpu = sum(block.cpu for _, block in rows)
    print(
        f"{asked.pairs} pairs of blocks, each {1000 * statistics.median(b.wall for p in rows for b in p) / asked.ranks:.0f} ms"
    )
    print("| what `hangscope run` costs | of the job's time | 95% interval |\n| --- | ---: | ---: |")
    told = (
        ("CPU time of the agent in the ranks, by its own clock", *interval(rows, agent_share)),
        ("CPU time of the ranks, paired with the job alone", *interval(rows, difference(lambda b: b.cpu))),
        ("time of a step, paired with the job alone", *interval(rows, difference(lambda b: b.wall))),
    )
    for what, value, low, high in told:
        print(f"| {what} | {value:+.2f}% | {low:+.2f}% to {high:+.2f}% |")
    print(f"| CPU time of `hangscope run` itself, by its own clock | {100 * runner / cpu:+.2f}% | |")


if __name__ == "__main__":
    main()
