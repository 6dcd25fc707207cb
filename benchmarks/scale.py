"""Measure hangscope against torch's own analyzer and a plain load, on the same generated dumps in the same run.

    python benchmarks/scale.py                 # 64 and 256 ranks
    python benchmarks/scale.py --large         # ... up to 16,384 ranks (7 GB of dumps at a time)

Every number is of a whole process, from its start to its end: wall time, user and system CPU time together, and peak
resident memory (the peaks of all its processes added up). `pickle.load` is one process that loads every dump and drops
it. hangscope takes seconds, on which a busy machine shows, so it is run three times and the run with the middle CPU time
counts; the others are run once. Ratios compare rows of one size; growth compares CPU time with half as many ranks.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dump_generator import PREFIX, Job, generate

LOAD = """
import os, pickle, sys
for name in sorted(os.listdir(sys.argv[1])):
    with open(os.path.join(sys.argv[1], name), "rb") as stream:
        pickle.load(stream)
"""
SMALL = (
    Job(64, frames=12, layout="mesh"),
    Job(256, frames=12, layout="mesh"),
    Job(256, frames=20, shared=False, layout="mesh"),
)
LARGE = tuple(Job(ranks, frames=12, layout="mesh") for ranks in (1024, 2048, 4096, 8192, 16384))
#: torch's analyzer is not run above this: it takes minutes and gigabytes
ANALYZER_RANKS = 256
RUNS = 3  # of hangscope


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process and its children took: seconds and bytes."""

    wall: float
    cpu: float
    memory: int
    code: int


def run(command: Sequence[str], environment: dict[str, str] | None = None) -> Cost:
    """Run a command to its end and return what it cost."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
    )
    peaks: dict[int, int] = {}
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(process.pid, peaks, ended))
    watcher.start()
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    ended.set()
    watcher.join()
    peaks[process.pid] = max(peaks.get(process.pid, 0), 0)
    return Cost(
        wall,
        usage.ru_utime + usage.ru_stime,
        max(sum(peaks.values()), usage.ru_maxrss * 1024),
        process.returncode,
    )


def _watch(root: int, peaks: dict[int, int], ended: threading.Event) -> None:
    """Keep the peak memory of every process below `root`."""
    while not ended.wait(0.05):
        for pid in _tree(root):
            try:
                text = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for line in text.splitlines():
                if line.startswith("VmHWM:"):
                    peaks[pid] = int(line.split()[1]) * 1024


def _tree(root: int) -> list[int]:
    found = [root]
    for pid in found:
        for path in Path(f"/proc/{pid}/task").glob("*/children"):
            try:
                found += [int(child) for child in path.read_text().split()]
            except OSError:
                continue
    return found


def measure(job: Job, folder: Path, jobs: int) -> list[tuple[str, Cost]]:
    """Return the cost of each program on one job's dumps."""
    out = folder / "report.html"
    dumps = folder / "dumps"
    root = str(Path(__file__).resolve().parent.parent)
    analyze = ["analyze", str(dumps), "-o", str(out), "--jobs", str(jobs), "-q"]
    costs = [run([sys.executable, "-m", "hangscope", *analyze], {"PYTHONPATH": root}) for _ in range(RUNS)]
    rows = [("hangscope", sorted(costs, key=lambda cost: cost.cpu)[RUNS // 2])]
    print(f"    report: {out.stat().st_size / 1000:,.0f} KB" if out.exists() else "    no report", flush=True)
    rows.append(("pickle.load", run([sys.executable, "-c", LOAD, str(dumps)])))
    analyzer = Path(sysconfig.get_path("scripts")) / "torchfrtrace"
    if job.ranks > ANALYZER_RANKS:
        pass
    elif analyzer.exists():
        rows.append(("torchfrtrace", run([str(analyzer), str(dumps), "-p", PREFIX])))
    else:
        print("    torchfrtrace is not installed: pip install torch==2.13.0", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="also 1,024 to 16,384 ranks")
    parser.add_argument("--ranks", type=int, nargs="*", help="these sizes only (mesh, 12 shared frames)")
    parser.add_argument("--folder", type=Path, help="where the dumps go (default: the temporary folder)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    wanted = (
        [Job(n, frames=12, layout="mesh") for n in options.ranks]
        if options.ranks
        else [*SMALL, *(LARGE if options.large else ())]
    )
    lines = [
        "| ranks x calls x frames | dumps | program | wall | CPU | peak memory | CPU / pickle.load | wall / pickle.load | growth of CPU per doubling |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    before: dict[tuple[str, bool], tuple[int, float]] = {}
    for job in wanted:
        name = f"{job.ranks:,} x {job.entries:,} x {job.frames} {'shared' if job.shared else 'unshared'}"
        with tempfile.TemporaryDirectory(prefix="hangscope-bench-", dir=options.folder) as place:
            need = int(job.ranks * (0.33e6 + 6.2 * job.ranks if job.shared else 3e6) * 1.1)
            free = shutil.disk_usage(place).free
            if free < need:
                print(
                    f"skipped {name}: needs {need / 1e9:.1f} GB of disk, {place} has {free / 1e9:.1f} GB",
                    flush=True,
                )
                continue
            size = generate(Path(place) / "dumps", job)
            os.sync()  # so that writing them back does not run beside what is measured
            print(f"{name}: {size / 1e6:,.0f} MB", flush=True)
            rows = measure(job, Path(place), options.jobs)
        plain = dict(rows)["pickle.load"]
        for program, cost in rows:
            growth = ""
            if (program, job.shared) in before:
                ranks, cpu = before[program, job.shared]
                if job.ranks == 2 * ranks:
                    growth = f"{cost.cpu / cpu:.2f}"
            before[program, job.shared] = (job.ranks, cost.cpu)
            lines.append(
                f"| {name} | {size / 1e6:,.0f} MB | {program}{'' if cost.code == 0 else f' (exit {cost.code})'} | {cost.wall:.1f} s | {cost.cpu:.1f} s | "
                f"{cost.memory / 1e6:,.0f} MB | {cost.cpu / plain.cpu:.2f} | {cost.wall / plain.wall:.2f} | {growth} |"
            )
            print("   ", lines[-1].strip("| "), flush=True)
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
