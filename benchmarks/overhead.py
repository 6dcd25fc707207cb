"""What `hangscope run` costs a healthy job: processor time of the same gloo job with and without it.

    python benchmarks/overhead.py [--ranks 2] [--steps 2000] [--repeat 5]

The job computes a matrix product and reduces over all ranks in every step. Runs alternate, the medians are compared; the
time counted is that of the loop in the ranks, so that the start of the interpreter is no part of it.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
TRAIN = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
a = torch.randn(256, 256)
for step in range(int(sys.argv[1]) + 20):
    if step == 20:
        cpu, wall = time.process_time(), time.perf_counter()
    dist.all_reduce(a @ a / 256)
with open(f"cost_{dist.get_rank()}", "w") as file:
    print(time.process_time() - cpu, time.perf_counter() - wall, file=file)
dist.destroy_process_group()
"""


def seconds(watched: bool, ranks: int, steps: int) -> tuple[float, float]:
    """Return (processor, wall) seconds of the loop, summed and averaged over the ranks."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        Path(folder, "train.py").write_text(TRAIN)
        command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={ranks}"]
        command += ["--master-addr=127.0.0.1", f"--master-port={port}", "train.py", str(steps)]
        if watched:
            command = [sys.executable, "-m", "hangscope", "run", "--hang-timeout", "600", "--", *command]
        settings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        subprocess.run(command, cwd=folder, env=settings, capture_output=True, timeout=300, check=True)
        rows = [path.read_text().split() for path in Path(folder).glob("cost_*")]
    return sum(float(cpu) for cpu, _ in rows), sum(float(wall) for _, wall in rows) / len(rows)


def main() -> None:
    """Print both and their ratio."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--repeat", type=int, default=5)
    asked = parser.parse_args()
    runs: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for _ in range(asked.repeat):
        for watched in (False, True):
            runs[watched].append(seconds(watched, asked.ranks, asked.steps))
    for place, unit in enumerate(("processor", "wall")):
        bare, under = (statistics.median(run[place] for run in runs[w]) for w in (False, True))
        print(
            f"{unit}: {bare:.2f} s alone, {under:.2f} s under hangscope run, {100 * (under / bare - 1):+.1f}%"
        )


if __name__ == "__main__":
    main()
