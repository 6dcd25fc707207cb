"""Whether jobs end under `hangscope run` as they do without it, whatever happens to the watcher and its folder.

    python benchmarks/soak.py [--jobs 200] [--seed 1]

Each job is one of four launchers (a bash script, plain Python, torchrun with two gloo ranks, mp.spawn), prints its steps, saves a
checkpoint and ends with 0 or 3. Each runs alone first, then under `hangscope run`; at a random moment its watcher is killed, or the
folder is removed, filled, made read-only or slow. Compared are the exit code, what was printed and the checkpoint; afterwards no
process of it may be left. Filling, read-only and slow disks need root (a tmpfs of its own, a preloaded library needs gcc).
Prints a Markdown table; `| python docs/refresh.py soak` puts it into docs/live-safety.md.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHIM = ROOT / "tests" / "live" / "scripts" / "failing_folder.c"
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
        train(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))
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
}


@dataclass
class Disk:
    """Where the folder of a run is: a tmpfs of its own if that can be had, which can then be filled and made read-only."""

    path: Path
    is_own: bool
    shim: Path | None

    def kill(self, pid: int) -> None:
        """Kill the watcher, as soon as there is one."""
        deadline = time.monotonic() + 10.0
        while time.monotonic() < deadline:
            with suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                    if b"live.watch" in Path(f"/proc/{child}/cmdline").read_bytes():
                        return os.kill(int(child), signal.SIGKILL)
            time.sleep(0.02)

    def remove(self, _: int) -> None:
        """Remove the folder."""
        shutil.rmtree(self.path / "left", ignore_errors=True)

    def fill(self, _: int) -> None:
        """Fill the disk."""
        with suppress(OSError), open(self.path / "filler", "wb") as file:
            file.write(bytes(4 << 20))

    def fail(self, _: int) -> None:
        """From now on every write is an error, or takes a second; as the environment of the job says."""
        (self.path.parent / "now").touch()


#: What happens; and the errno, or the delay, that the disk then has.
FAULTS: dict[str, tuple[Callable[[Disk, int], None] | None, dict[str, str]]] = {
    "none": (None, {}),
    "watcher killed": (Disk.kill, {}),
    "folder removed": (Disk.remove, {}),
    "disk full": (Disk.fill, {}),
    "read-only": (Disk.fail, {"FAIL_ERRNO": "30"}),
    "input/output error": (Disk.fail, {"FAIL_ERRNO": "5"}),
    "slow disk": (Disk.fail, {"FAIL_SLOW": "1"}),
}


@dataclass
class Tally:
    """The jobs of one fault."""

    jobs: int = 0
    as_alone: int = 0
    left: int = 0


def outcome(folder: Path, process: subprocess.Popen[bytes]) -> tuple[int, list[bytes], list[str]]:
    """Return how a job ended: its exit code, the lines that it printed in order of text, and its checkpoints."""
    printed, _ = process.communicate(timeout=180)
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
    work: Path, number: int, dice: random.Random, shim: Path | None, own_disks: bool
) -> tuple[str, str, bool, bool]:
    """Run one job alone and watched; return its launcher and fault, whether both ended alike, and whether nothing was left."""
    launcher, fault = dice.choice(list(LAUNCHERS)), dice.choice(list(FAULTS))
    command = LAUNCHERS[launcher](dice.choice([0, 0, 3]))
    share, moment = dice.random(), 0.0  # of the time that the job takes alone
    ends = []
    for kind in ("alone", "watched"):
        folder = work / f"{number}-{kind}"
        folder.mkdir()
        (folder / "train.py").write_text(TRAIN)
        (folder / "train.sh").write_text(f"{sys.executable} train.py $1\ncode=$?\necho over\nexit $code\n")
        disk = Disk(folder / "disk", own_disks, shim)
        disk.path.mkdir(mode=0o700)
        if own_disks:
            subprocess.run(
                ["mount", "-t", "tmpfs", "-o", "size=2m,mode=700", "none", str(disk.path)], check=True
            )
        began = time.monotonic()
        try:
            ends.append(_run_once(folder, disk, command, fault if kind == "watched" else "", moment))
        finally:
            moment = share * (time.monotonic() - began)
            left = _left_in(folder)
            if own_disks:
                subprocess.run(["umount", "-l", str(disk.path)], check=False)
            shutil.rmtree(folder, ignore_errors=True)
    if ends[0] != ends[1] or left:
        print(
            f"job {number} ({launcher}, {fault} at {moment:.1f} s): alone {ends[0]}, watched {ends[1]}",
            file=sys.stderr,
        )
    return launcher, fault, ends[0] == ends[1], not left


def _run_once(
    folder: Path, disk: Disk, command: list[str], fault: str, moment: float
) -> tuple[int, list[bytes], list[str]]:
    settings = {k: v for k, v in os.environ.items() if not k.startswith(("TORCH", "MASTER", "RANK", "WORLD"))}
    settings |= {
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(_port()),
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


def main() -> int:
    """Run the jobs and print the table; 0 if all ended as they do alone."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    dice = random.Random(wanted.seed)
    tallies: dict[str, Tally] = defaultdict(Tally)
    launched: dict[str, int] = defaultdict(int)
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        work = Path(name)
        shim, own_disks = _shim(work), os.geteuid() == 0
        for number in range(wanted.jobs):
            launcher, fault, alike, clean = run_job(work, number, dice, shim, own_disks)
            tally = tallies[fault]
            tally.jobs += 1
            tally.as_alone += alike
            tally.left += not clean
            launched[launcher] += 1
            print(f"{number + 1} of {wanted.jobs}: {launcher}, {fault}", file=sys.stderr)
    print(
        "| fault | jobs | ended as without hangscope | left a process running |\n| --- | ---: | ---: | ---: |"
    )
    for fault in FAULTS:
        tally = tallies[fault]
        print(f"| {fault} | {tally.jobs} | {tally.as_alone} | {tally.left} |")
    total, alike, left = (sum(getattr(t, n) for t in tallies.values()) for n in ("jobs", "as_alone", "left"))
    print(
        f"| all ({', '.join(f'{n} {name}' for name, n in sorted(launched.items()))}) | {total} | {alike} | {left} |"
    )
    return 0 if alike == total and not left else 1


if __name__ == "__main__":
    sys.exit(main())
