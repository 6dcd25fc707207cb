"""Time and memory of `table`, `trace` and `brief` on a large job: `python benchmarks/export_scale.py [--ranks 1024]`.

The dumps are those of scale.py (2,000 calls in each recorder). Peak memory is that of the command and all its readers added up.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dump_generator import Job, generate

COMMANDS = (
    ("analyze (for comparison)", ("analyze", "-o", "report.html")),
    ("table, CSV", ("table", "-o", "calls.csv")),
    ("table, Parquet", ("table", "-o", "calls.parquet")),
    ("trace, folded", ("trace", "-o", "folded.json")),
    ("trace, all ranks", ("trace", "--all-ranks", "-o", "all.json")),
    ("brief", ("brief",)),
)


def measured(folder: Path, words: tuple[str, ...], dumps: Path) -> tuple[float, float, int]:
    """Run a command; return its wall time, its CPU time and its peak memory in MB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = subprocess.Popen(
        [sys.executable, "-m", "hangscope", words[0], str(dumps), *words[1:], "-q"],
        cwd=folder,
        stdout=subprocess.DEVNULL,
    )
    peaks: dict[int, int] = {}
    while command.poll() is None:
        for pid in (command.pid, *_children(command.pid)):
            try:
                status = Path(f"/proc/{pid}/status").read_text()
            except OSError:
                continue
            for line in status.splitlines():
                if line.startswith("VmHWM:"):
                    peaks[pid] = max(peaks.get(pid, 0), int(line.split()[1]))
        time.sleep(0.1)
    if command.returncode:
        raise SystemExit(f"hangscope {' '.join(words)} ended with {command.returncode}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.monotonic() - began, cpu, sum(peaks.values()) >> 10


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:
            continue
    return [*found, *(grand for child in found for grand in _children(child))]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=1024)
    ranks = parser.parse_args().ranks
    print("| command | ranks | calls | output | wall | CPU | peak memory |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory(prefix="hangscope-export-") as scratch:
        dumps, here = Path(scratch, "dumps"), Path(scratch, "here")
        dumps.mkdir()
        here.mkdir()
        generate(dumps, Job(ranks, layout="mesh"))
        for name, words in COMMANDS:
            wall, cpu, peak = measured(here, words, dumps)
            files = list(here.iterdir())
            size = f"{sum(path.stat().st_size for path in files) / 1e6:,.1f} MB" if files else "stdout"
            for path in files:
                os.unlink(path)
            print(
                f"| {name} | {ranks:,} | {2000 * ranks:,} | {size} | {wall:.1f} s | {cpu:.1f} s | {peak:,} MB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
