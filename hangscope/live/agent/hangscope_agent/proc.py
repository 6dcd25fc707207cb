"""Processes as /proc tells of them: which rank each is, what is below it, and its stacks where it listens for the signal."""

import os
import signal
import stat
import time
from typing import BinaryIO, Dict, List, Optional, Sequence, Tuple

STACK_SIGNAL = signal.SIGRTMIN + 11
STATUS_NAME, STACKS_NAME = "hangscope-status", "hangscope-stacks"  # of anonymous files
MOST_STACKS, MOST_ENVIRONMENT = 4 << 20, 4 << 20  # bytes that are read of another process
RANK_NAMES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "MV2_COMM_WORLD_RANK")
WORLD_NAMES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "SLURM_NTASKS")
LAUNCHERS = ("torchrun", "torch.distributed.run", "torch.distributed.launch", "accelerate", "deepspeed", "ray",
             "deepspeed.launcher.launch", "deepspeed.launcher.runner", "horovodrun", "mpirun", "hangscope")  # fmt: skip

MOST_RANKS = 262144
PATIENCE = 0.5  # s for faulthandler to have written


def number(text: Optional[str]) -> Optional[int]:
    """Return the number that a text is, if a rank or a count of ranks may be that number, else None."""
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 7:
        return None
    return int(text) if int(text) <= MOST_RANKS else None


def launches(command: Sequence[str]) -> bool:
    """Return whether a command line is that of a launcher."""
    return any(os.path.basename(word) in LAUNCHERS for word in command[1:4])


def rank_of(environment: Dict[str, str], command: List[str]) -> Optional[int]:
    """Return the global rank that a process was started as, or None."""
    if launches(command):
        return None
    for name in RANK_NAMES:
        if environment.get(name):
            return number(environment[name])
    return number(environment.get("SLURM_PROCID")) if "SLURM_STEP_ID" in environment else None


def process_of(pid: int) -> Tuple[Dict[str, str], List[str]]:
    """Return the environment that a process was started with, and its command line."""
    with open("/proc/%d/environ" % pid, "rb") as file:
        items = os.fsdecode(file.read(MOST_ENVIRONMENT)).split("\0")
    with open("/proc/%d/cmdline" % pid, "rb") as file:
        words = os.fsdecode(file.read(MOST_ENVIRONMENT)).rstrip("\0").split("\0")
    return {name: value for name, sign, value in (item.partition("=") for item in items) if sign}, words


def stat_of(place: object) -> List[str]:
    """Return the fields of a process's or thread's `stat` behind its name: the state, the parent, ..."""
    with open("/proc/%s/stat" % place, "rb") as file:
        return file.read().rpartition(b")")[2].decode().split()


def fields_of(place: str) -> Dict[str, str]:
    """Return the fields of a file below /proc that has one in each line: `SigCgt:	0000000180004002` in 4711/status."""
    with open("/proc/" + place, errors="replace") as file:
        return {name: value.strip() for name, _, value in (line.partition(":") for line in file)}


def children_of(pid: int) -> List[int]:
    """Return the child processes of a process, sorted by process id."""
    below: Dict[int, List[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                below.setdefault(int(stat_of(name)[1]), []).append(int(name))
            except (OSError, IndexError, ValueError):
                pass  # it has just ended
    found = list(below.get(pid, []))
    for parent in found:  # grows
        found += below.get(parent, [])
    return sorted(found)[:256]


def is_rank(pid: int) -> bool:
    """Return whether the agent of a process reports its progress, as those of ranks do (Lightning starts ranks below rank 0)."""
    try:
        with open_anonymous(anonymous(pid, STATUS_NAME)) as file:
            return bool(file.read(1))
    except OSError:
        return False


def stacks_of(pid: int) -> str:
    """Return what faulthandler says of a process that listens for the signal, "" where it does not."""
    try:
        if not int(fields_of("%d/status" % pid)["SigCgt"], 16) >> (STACK_SIGNAL - 1) & 1:
            return ""  # it has no handler for the signal, and would end by it
        with open_anonymous(anonymous(pid, STACKS_NAME)) as file:
            before = os.fstat(file.fileno()).st_size
            os.kill(pid, STACK_SIGNAL)
            size, deadline = -1, time.monotonic() + PATIENCE
            while time.monotonic() < deadline:
                time.sleep(0.02)
                now = os.fstat(file.fileno()).st_size
                if now > before and now == size:
                    break
                size = now
            file.seek(before)
            return file.read(MOST_STACKS).decode("utf-8", "replace")
    except (OSError, KeyError, ValueError):
        return ""


def anonymous(pid: int, name: str) -> str:
    """Return the path of an anonymous file of a process, "" where it has none of that name."""
    folder = "/proc/%d/fd" % pid
    try:
        for number in sorted(os.listdir(folder), key=int):
            path = folder + "/" + number
            if os.readlink(path).startswith("/memfd:" + name):
                return path
    except OSError:
        pass
    return ""


def open_anonymous(path: str) -> BinaryIO:
    """Open an anonymous file of a process; raise OSError where the path is anything else, such as a pipe that blocks."""
    number = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    info = os.fstat(number)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink:
        os.close(number)
        raise OSError("not an anonymous file: " + path)
    return os.fdopen(number, "rb")
