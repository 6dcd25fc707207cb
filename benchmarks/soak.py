"""Whether jobs end under `hangscope run` as they do without it, whatever happens to the watcher and its folder.

    python benchmarks/soak.py [--jobs 200] [--seed 1] [--results FILE [--seconds 1800]]

Each job has one of five launchers (a bash script, plain Python; torchrun, mp.spawn and mpirun with two gloo ranks), prints its
steps, saves a checkpoint and ends with 0 or 3. Each kind of job runs alone once, then all under `hangscope run`; at a random moment its watcher is killed, or the
folder is removed, filled, made read-only or slow. Compared are the exit code, what was printed and the checkpoint; afterwards no
process of it may be left. Filling, read-only and slow disks need root (a tmpfs of its own, a preloaded library needs gcc).
Prints a Markdown table; `| python docs/refresh.py soak` puts it into docs/live-safety.md. With `--results` each finished job is
a line of FILE, and a later call with the same FILE continues there; `--seconds` stops it after that time.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from soak_faults import FAULTS, Disk

ROOT = Path(__file__).resolve().parents[1]
SHIM = ROOT / "tests" / "live" / "scripts" / "failing_folder.c"
_LONGEST = 180.0  # s for a job to end
STEPS, STEP = 12, 0.15  # steps of a job, s of a step

TRAIN = f"""
import os, sys, time
def train(rank, world):
    if world > 1:
        import torch, torch.distributed as dist
        dist.init_process_group("gloo", rank=rank, world_size=world)
    for step in range({STEPS}):
        if world > 1:
            dist.all_reduce(torch.ones(4))
        sys.stdout.write("rank %d step %d\\n" % (rank, step))
        sys.stdout.flush()
        time.sleep({STEP})
    with open("checkpoint_%d" % rank, "w") as file:
        file.write("state of rank %d" % rank)
    if world > 1:
        dist.destroy_process_group()
if __name__ == "__main__":
    code = int(sys.argv[1])
    if sys.argv[2:] == ["spawn"]:
        import torch.multiprocessing as mp
        mp.spawn(train, args=(2,), nprocs=2)
    else:
        rank, world = (os.environ.get(name, os.environ.get("OMPI_COMM_WORLD_" + other, default))
                       for name, other, default in (("RANK", "RANK", 0), ("WORLD_SIZE", "SIZE", 1)))
        train(int(rank), int(world))
    sys.exit(code)
"""


def _torchrun(code: int) -> list[str]:
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    return [*words, "train.py", str(code)]


LAUNCHERS: dict[str, Callable[[int], list[str]]] = {
    "bash": lambda code: ["bash", "train.sh", str(code)],
    "python": lambda code: [sys.executable, "train.py", str(code)],
    "torchrun": _torchrun,
    "mp.spawn": lambda code: [sys.executable, "train.py", str(code), "spawn"],
    "mpirun": lambda code: ["mpirun", "-n", "2", sys.executable, "train.py", str(code)],
}


#: How a job ended: its exit code (124: not at all), the lines that it printed in order of text, and its checkpoints.
End = tuple[int, list[bytes], list[str]]


@dataclass(frozen=True)
class Alone:
    """How a job ends without hangscope, and how long it takes (s)."""

    end: End
    seconds: float


@dataclass(frozen=True)
class Result:
    """How one job ended: whether it ended as it does alone, and whether it left no process running."""

    number: int
    launcher: str
    fault: str
    alike: bool
    clean: bool


def outcome(folder: Path, process: subprocess.Popen[bytes]) -> End:
    """Return how a job ended."""
    try:
        printed, _ = process.communicate(timeout=_LONGEST)
    except subprocess.TimeoutExpired:
        for pid in processes_in(folder):
            with suppress(OSError):  # for whoever looks into it
                subprocess.run(
                    ["py-spy", "dump", "--pid", str(pid)], stdout=sys.stderr, timeout=20, check=False
                )
        return 124, [], []
    saved = [f"{path.name}: {path.read_text()}" for path in sorted(folder.glob("checkpoint_*"))]
    return process.returncode, sorted(printed.splitlines()), saved


def processes_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(int(name))
    return found


def run_job(
    work: Path, number: int, dice: random.Random, shim: Path | None, own_disks: bool, alone: dict[str, Alone]
) -> Result:
    """Run one job watched, and compare how it ended with how it ends `alone` (by its command)."""
    here = [name for name in LAUNCHERS if name != "mpirun" or shutil.which(name)]
    launcher, fault = dice.choice(here), dice.choice(list(FAULTS))
    command = LAUNCHERS[launcher](dice.choice([0, 0, 3]))
    share, key, clean = dice.random(), " ".join(command), True
    if key not in alone:
        began = time.monotonic()
        end, _ = _run_in_folder(work / f"{number}-alone", command, "", 0.0, shim, own_disks)
        alone[key] = Alone(end, time.monotonic() - began)
    moment = share * alone[key].seconds
    end, clean = _run_in_folder(work / f"{number}-watched", command, fault, moment, shim, own_disks)
    if end != alone[key].end or not clean:
        print(
            f"job {number} ({key}, {fault} at {moment:.1f} s): alone {alone[key].end}, watched {end}",
            file=sys.stderr,
        )
    return Result(number, launcher, fault, end == alone[key].end, clean)


def _run_in_folder(
    folder: Path, command: list[str], fault: str, moment: float, shim: Path | None, own_disks: bool
) -> tuple[End, bool]:
    """Run one command in a folder of its own; return how it ended, and whether it left no process."""
    folder.mkdir()
    (folder / "train.py").write_text(TRAIN)
    (folder / "train.sh").write_text(f"{sys.executable} train.py $1\ncode=$?\necho over\nexit $code\n")
    disk = Disk(folder / "disk", own_disks, shim)
    disk.path.mkdir(mode=0o700)
    if own_disks:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(disk.path)], check=True)
    try:
        end = _run_once(folder, disk, command, fault, moment)
    finally:
        left = _left_in(folder)
        if own_disks:
            subprocess.run(["umount", "-l", str(disk.path)], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    return end, not left


def _run_once(folder: Path, disk: Disk, command: list[str], fault: str, moment: float) -> End:
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "MASTER", "RANK", "WORLD"))}
    settings |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_port()),
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
    }
    settings["TMPDIR"] = str(disk.path)
    happens, more = FAULTS.get(fault, (None, {}))
    if more and disk.shim is not None:
        preload = {
            "LD_PRELOAD": str(disk.shim),
            "FAIL_UNDER": str(disk.path / "left"),
            "FAIL_IF": str(folder / "now"),
        }
        settings |= more | preload
    watch = [
        sys.executable,
        "-m",
        "hangscope",
        "run",
        "--dir",
        str(disk.path / "left"),
        "--hang-timeout",
        "30",
        "--",
    ]
    settings["PYTHONPATH"] = str(ROOT)
    process = subprocess.Popen(
        [*(watch if fault else []), *command],
        cwd=folder, env=settings, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    if happens is not None:
        time.sleep(moment)
        happens(disk, process.pid)
    try:
        return outcome(folder, process)
    finally:
        process.kill()


def _left_in(folder: Path) -> list[int]:
    """Return what a job left running a second after its end, and end it."""
    deadline = time.monotonic() + 1.0
    while (left := processes_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    for pid in left:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
    return left


def _port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _shim(work: Path) -> Path | None:
    shim = work / "failing_folder.so"
    if shutil.which("gcc") is None:
        return None
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", str(shim), str(SHIM), "-ldl"], check=True)
    return shim


def run_jobs(count: int, seed: int, results: list[Result], keep: Path | None, seconds: float) -> None:
    """Run the jobs that are not in `results` yet and add them, for `seconds` at most."""
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        work = Path(name)
        shim, own_disks, alone = _shim(work), os.geteuid() == 0, dict[str, Alone]()
        for number in sorted(set(range(count)) - {result.number for result in results}):
            if time.monotonic() > deadline:
                break
            result = run_job(work, number, random.Random(f"{seed} {number}"), shim, own_disks, alone)
            results.append(result)
            if keep is not None:
                with open(keep, "a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")
            print(f"{number + 1} of {count}: {result.launcher}, {result.fault}", file=sys.stderr)


def table(results: list[Result]) -> str:
    """Return the Markdown table."""
    launched = Counter(result.launcher for result in results)
    rows = [(fault, [r for r in results if r.fault == fault]) for fault in FAULTS]
    rows.append((f"all ({', '.join(f'{n} {name}' for name, n in sorted(launched.items()))})", results))
    lines = ["| fault | jobs | ended as without hangscope | left a process running |"]
    lines.append("| --- | ---: | ---: | ---: |")
    for name, of in rows:
        alike, left = sum(r.alike for r in of), sum(not r.clean for r in of)
        lines.append(f"| {name} | {len(of)} | {alike} | {left} |")
    return "\n".join(lines)


def main() -> int:
    """Run the jobs and print the table; 0 if all ended as they do alone."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="a file that keeps each finished job")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this time")
    wanted = parser.parse_args()
    results: list[Result] = []
    if wanted.results is not None and wanted.results.exists():
        results = [Result(**json.loads(line)) for line in wanted.results.read_text().splitlines()]
    run_jobs(wanted.jobs, wanted.seed, results, wanted.results, wanted.seconds)
    print(table(results))
    return 0 if all(result.alike and result.clean for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
