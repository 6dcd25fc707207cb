"""Measure hangscope against torch's own analyzer and a plain load, on the same generated dumps in the same run.

    python benchmarks/scale.py                 # 8 to 256 ranks, every kind of dump
    python benchmarks/scale.py --large         # ... and 1,024, and dumps that are alike up to 16,384 (10 GB at a time)
    python benchmarks/scale.py --no-analyzer   # without torchfrtrace, which takes most of the time

Every number is of a whole process, from its start to its end: wall time, user and system CPU time together, and peak
resident memory (the peaks of all its processes added up). hangscope is measured as it is installed: from a wheel, which has
its modules and templates compiled. The plain load is one process that loads every dump (pickle.load,
of JSON json.load) and drops it. hangscope takes seconds, on which a busy machine shows: it is run three times, and the run
with the middle CPU time counts; the others are run once. Ratios compare rows of one kind and size. Growth is hangscope's CPU
time over that with half as many ranks, run just before it (a shared machine's speed changes from minute to minute); the
middle of three again.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dump_generator import PREFIX, Job, generate

LOAD = """
import json, os, pickle, sys
for name in sorted(os.listdir(sys.argv[1])):
    if name.startswith("nccl_trace"):
        with open(os.path.join(sys.argv[1], name), "rb") as stream:
            json.load(stream) if name.endswith(".json") else pickle.load(stream)
"""
#: what the dumps of a job are like, by name
KINDS: dict[str, dict[str, Any]] = {
    "alike": {},
    "timing": {"timing": True},
    "ragged rings": {"ragged": True},
    "experts": {"layout": "experts"},
    "pipeline": {"layout": "pipeline"},
    "own stacks": {"own_stacks": True},
    "JSON": {"as_json": True},
}


def job(kind: str, ranks: int) -> Job:
    """Return the job of a kind."""
    return Job(ranks, **{"layout": "mesh", **KINDS.get(kind, {"log_kb": 2048})})


SMALL = [
    ("alike", 8),
    ("alike", 64),
    *(("2 MB logs, stacks", n) for n in (64, 256)),
    *((kind, 256) for kind in KINDS),
]
LARGE = [
    *((kind, 1024) for kind in (*KINDS, "2 MB logs, stacks") if kind != "alike"),
    *(("alike", ranks) for ranks in (1024, 2048, 4096, 8192, 16384)),
]
#: torch's analyzer is not run above this: it takes minutes and gigabytes
ANALYZER_RANKS = 256
COLUMNS = (
    "dumps", "ranks", "size", "program", "wall", "CPU", "peak memory", "CPU / plain load", "growth of CPU per doubling",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Dumps:
    """The generated dumps of one job. `size` is in bytes."""

    kind: str
    job: Job
    folder: Path
    size: int

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.job.ranks:,} ranks"

    def doubles(self, other: Dumps | None) -> bool:
        """Return whether these are of twice as many ranks as `other`, and else alike."""
        return other is not None and self.job == replace(other.job, ranks=2 * other.job.ranks)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process and its children took: seconds and bytes."""

    wall: float
    cpu: float
    memory: int
    code: int


def run(
    command: Sequence[str], environment: dict[str, str] | None = None, folder: Path | None = None
) -> Cost:
    """Run a command to its end, in `folder` where one is given, and return what it cost."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **(environment or {})},
        cwd=folder,
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


def prepare(kind: str, ranks: int, place: Path) -> Dumps | None:
    """Generate a job's dumps in a folder of their own; None, with a message, where the disk lacks room."""
    made = job(kind, ranks)
    folder = place / f"{kind.replace(' ', '-').replace(',', '')}-{ranks}"
    each = 0.36e6 + 6.2 * ranks + made.log_kb * 1024 + (1e6 if made.as_json else 0)
    need = int(ranks * each * 1.1)
    free = shutil.disk_usage(place).free
    if free < need:
        print(
            f"skipped {kind}, {ranks:,} ranks: needs {need / 1e9:.1f} GB of disk, {place} has {free / 1e9:.1f} GB",
            flush=True,
        )
        return None
    dumps = Dumps(kind, made, folder, generate(folder, made))
    os.sync()  # so that writing them back does not run beside what is measured
    print(f"{dumps.name}: {dumps.size / 1e6:,.0f} MB", flush=True)
    return dumps


def install(place: Path) -> Path:
    """Install this checkout's hangscope, without what it depends on, into a folder of its own and return that."""
    folder = place / "installed"
    command = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(folder)]
    if importlib.util.find_spec("hatchling") is not None:
        command.append("--no-build-isolation")
    subprocess.run([*command, str(Path(__file__).resolve().parent.parent)], check=True)
    return folder


def hangscope(dumps: Dumps, jobs: int) -> Cost:
    """Return what one analysis costs."""
    out = dumps.folder.with_suffix(".html")
    command = [sys.executable, "-m", "hangscope", "analyze", str(dumps.folder), "-o", str(out), "-q"]
    place = dumps.folder.parent  # in a checkout, `-m` would find that
    cost = run([*command, "--jobs", str(jobs)], {"PYTHONPATH": str(place / "installed")}, place)
    print(
        f"    hangscope, {dumps.job.ranks:,} ranks: {cost.cpu:.1f} s of CPU time, report of {out.stat().st_size / 1e3:,.0f} KB",
        flush=True,
    )
    return cost


def measure(
    dumps: Dumps, half: Dumps | None, jobs: int, runs: int, analyze: bool
) -> tuple[list[tuple[str, Cost]], float | None]:
    """Return the cost of each program on one job's dumps, and hangscope's growth over half the ranks where they are given."""
    whole: list[Cost] = []
    growths: list[float] = []
    for _ in range(runs):
        with_half = hangscope(half, jobs) if half is not None else None
        whole.append(hangscope(dumps, jobs))
        if with_half is not None:
            growths.append(whole[-1].cpu / with_half.cpu)
    rows = [
        ("hangscope", sorted(whole, key=lambda cost: cost.cpu)[runs // 2]),
        ("plain load", run([sys.executable, "-c", LOAD, str(dumps.folder)])),
    ]
    analyzer = Path(sysconfig.get_path("scripts")) / "torchfrtrace"
    if dumps.job.ranks > ANALYZER_RANKS or dumps.job.as_json or dumps.job.log_kb or not analyze:
        pass  # nor does it read JSON, or a folder with other files in it
    elif analyzer.exists():
        rows.append(("torchfrtrace", run([str(analyzer), str(dumps.folder), "-p", PREFIX])))
    else:
        print("    torchfrtrace is not installed: pip install torch==2.13.0", flush=True)
    return rows, sorted(growths)[runs // 2] if growths else None


def table_rows(dumps: Dumps, rows: list[tuple[str, Cost]], growth: float | None) -> list[str]:
    """Return one line of Markdown per program."""
    plain = dict(rows)["plain load"]
    lines = []
    for program, cost in rows:
        grown = f"{growth:.2f}" if growth is not None and program == "hangscope" else ""
        failed = "" if cost.code == 0 else f" (exit {cost.code})"
        cells = (
            dumps.kind, f"{dumps.job.ranks:,}", f"{dumps.size / 1e6:,.0f} MB", program + failed, f"{cost.wall:.1f} s",
            f"{cost.cpu:.2f} s", f"{cost.memory / 1e6:,.0f} MB", f"{cost.cpu / plain.cpu:.2f}", grown,
        )  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
        print("   ", lines[-1].strip("| "), flush=True)
    return lines


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--large", action="store_true", help="also 1,024 to 16,384 ranks")
    parser.add_argument("--ranks", type=int, nargs="*", help="these sizes only")
    parser.add_argument("--kinds", nargs="*", choices=[*KINDS, "logs"], help="these kinds of dumps only")
    parser.add_argument("--no-analyzer", action="store_true", help="do not run torchfrtrace")
    parser.add_argument(
        "--runs", type=int, default=3, help="runs of hangscope, of which the middle one counts"
    )
    parser.add_argument("--folder", type=Path, help="where the dumps go (default: the temporary folder)")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    wanted = [
        (kind, ranks)
        for kind, ranks in (*SMALL, *LARGE)
        if (options.large or options.ranks or (kind, ranks) in SMALL)
        and (not options.ranks or ranks in options.ranks)
        and (not options.kinds or kind in options.kinds or ("logs" in options.kinds and kind not in KINDS))
    ]
    lines = [f"| {' | '.join(COLUMNS)} |", f"| --- | ---: | ---: | --- |{' ---: |' * 5}"]
    with tempfile.TemporaryDirectory(prefix="hangscope-bench-", dir=options.folder) as place:
        install(Path(place))
        before: Dumps | None = None
        for kind, ranks in dict.fromkeys(wanted):
            dumps = prepare(kind, ranks, Path(place))
            if dumps is None:
                continue
            half = before if dumps.doubles(before) else None
            rows, growth = measure(dumps, half, options.jobs, options.runs, not options.no_analyzer)
            lines += table_rows(dumps, rows, growth)
            if before is not None:
                shutil.rmtree(before.folder)
            before = dumps
    print("\n" + "\n".join(lines))


if __name__ == "__main__":
    main()
