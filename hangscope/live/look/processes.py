"""The processes of a job on this node, and which rank each is: from /proc, never by a name.

A rank is told by the environment that its launcher gave it (RANK, SLURM_PROCID, PMI and Open MPI variables); a process
below a rank that was not given another one is its worker. How far a rank has come is read from its agent's anonymous file:
no disk, no network, no signal.
"""

from __future__ import annotations

import json
import os
import signal
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.look.user import user_of
from hangscope.model.codec import from_plain
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase

_HELD = {"D": "in an uninterruptible wait", "T": "stopped", "t": "traced"}
_STATES = {"R": "running", "S": "sleeping", "Z": "ended", **_HELD}
_THREADS = 64
_STATUS = 4096  # bytes of an agent's file


@dataclass(frozen=True, slots=True)
class Process:
    """One process: its user, its global rank where it has one, the process whose worker it is, its command line."""

    pid: int
    rank: int | None
    worker_of: int | None
    world_size: int | None
    command: tuple[str, ...]
    folder: str = ""  # the run it belongs to, in its own words
    uid: int = -1

    @property
    def is_ours(self) -> bool:
        """Whether it runs as the user of this process; nobody else's is looked into."""
        return self.uid == os.geteuid()

    @property
    def is_rank(self) -> bool:
        """Whether it is a rank itself, and no worker of one."""
        return self.rank is not None and self.worker_of is None

    @property
    def is_python(self) -> bool:
        """Whether it is a Python, and not for instance the shell around one."""
        return "python" in os.path.basename(self.command[0] if self.command else "")

    @property
    def is_launcher(self) -> bool:
        """Whether it is a known launcher of ranks."""
        return self.rank is None and proc.launches(self.command)


@dataclass(frozen=True, slots=True)
class Status:
    """How far one rank has come; `world_size` is 0 before it is in a process group.

    `by_calls` says that its calls tell of its progress, or will, as soon as it makes some; else what it prints does.
    `changes` counts how often its frontier was seen to have moved, `printed` bytes that it printed outside of imports, `moves` how often its main thread was
    seen at another place or running Python code; `work` is the long work it is known to be in (import, compile, save), `at` the user's line; `saves`
    says that the program handles SIGTERM itself, `store` at which host and port its process group is to form.
    """

    pid: int
    rank: int
    world_size: int
    by_calls: bool
    changes: int
    printed: int
    moves: int
    work: str
    at: str = ""
    saves: bool = False
    store: str = ""


_paths: dict[int, str] = {}  # where processes that are read again and again have their file


def read_status(pid: int) -> Status | None:
    """Return what the agent of a process reports, None where there is none or it is no rank."""
    known = _paths.pop(pid, "")
    try:
        path = known or proc.anonymous(pid, proc.STATUS_NAME)
        with proc.open_anonymous(path) as file:
            status = from_plain(Status, {**json.loads(file.read(_STATUS)), "pid": pid})
        if not 0 <= status.rank < proc.MOST_RANKS or not 0 <= status.world_size <= proc.MOST_RANKS:
            raise ValueError("no job has so many ranks")
        _paths[pid] = path
        return status
    except (OSError, ValueError, TypeError, RecursionError):
        return read_status(pid) if known else None


def job_of(pids: Iterable[int]) -> list[Process]:
    """Return the given processes and all below them, those with a rank first, in the order of ranks."""
    found: dict[int, Process] = {}
    for member in (member for pid in pids for member in (pid, *proc.children_of(pid))):
        known = member in found or member == os.getpid()
        if not known and (process := _read(member, found)) is not None:
            found[member] = process
    # Of the processes of one rank that are no workers the Python ones count.
    python = {p.rank for p in found.values() if p.is_rank and p.is_python}
    kept = [p for p in found.values() if not p.is_rank or p.rank not in python or p.is_python]
    return sorted(kept, key=lambda p: (p.rank is None, p.rank or 0, p.worker_of is not None, p.pid))


def of_run(folder: str, run: str | None = None) -> list[Process]:
    """Return the processes on this node that run with this folder, or of these those below one call of `hangscope run`."""
    pids = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with suppress(OSError):  # another user's, or gone
            environment, _ = proc.process_of(pid)
            if environment.get("HANGSCOPE_DIR") == folder and run in (None, environment.get("HANGSCOPE_RUN")):
                pids.append(pid)
    return job_of(pids)


def by_rank(said: Iterable[tuple[int, str]], sign: str = ": ") -> list[str]:
    """Return `ranks 0-2: text` for all ranks of which the same is said, sorted by the texts; nothing is said by an empty one."""
    ranks = defaultdict(set)
    for rank, text in said:
        ranks[text].add(rank)
    return [f"{ranks_phrase(who)}{sign}{text}" for text, who in sorted(ranks.items()) if text]


def send(process: Process, number: int) -> None:
    """Send a signal to a rank, if its number still is that process's: it runs with the same folder."""
    with suppress(OSError):
        handle = os.pidfd_open(process.pid)
        try:
            if proc.process_of(process.pid)[0].get("HANGSCOPE_DIR") == process.folder:
                signal.pidfd_send_signal(handle, number)
        finally:
            os.close(handle)


def _read(pid: int, found: dict[int, Process]) -> Process | None:
    try:
        environment, command = proc.process_of(pid)
        parent = int(proc.stat_of(pid)[1])
        rank = proc.rank_of(environment, command)
    except (OSError, IndexError, ValueError):
        return None  # gone, or another user's
    user = user_of(pid)
    if user is None:
        return None
    above, worker_of = found.get(parent), None
    folder, status = environment.get("HANGSCOPE_DIR", ""), read_status(pid)
    if status is not None and status.world_size:
        return Process(pid, status.rank, None, status.world_size, tuple(command), folder, user.uid)
    if above is not None and above.rank is not None and above.is_python and rank in (None, above.rank):
        rank, worker_of = above.rank, above.worker_of or above.pid
    world = next((size for n in proc.WORLD_NAMES if (size := proc.number(environment.get(n)))), None)
    return Process(pid, rank, worker_of, world, tuple(command), folder, user.uid)


def cpu_seconds(pid: int) -> float:
    """Return the processor time that the main thread of a process has used or waited for in a queue, in seconds.

    Where the kernel does not tell of queues, what the whole process has used.
    """
    try:
        with open(f"/proc/{pid}/schedstat", "rb") as file:
            ran, queued = file.read().split()[:2]
        return (int(ran) + int(queued)) / 1e9
    except (OSError, ValueError):
        pass
    try:
        fields = proc.stat_of(pid)
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return 0.0


def is_held(pid: int) -> bool:
    """Return whether a process is stopped, traced or in an uninterruptible wait, so that its stack is not its own doing."""
    try:
        return proc.stat_of(pid)[0] in _HELD
    except (OSError, IndexError):
        return False


def kernel_statements(pid: int) -> str:
    """Return one line for the process and one for each of its first threads; "" if the process has ended."""
    lines = []
    try:
        state = proc.stat_of(pid)[0]
        lines.append(f"process {pid} is {_STATES.get(state, state)}")
        for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:_THREADS]:
            base = Path(f"/proc/{pid}/task/{task}")
            name = (base / "comm").read_text(errors="replace").strip()
            state = proc.stat_of(f"{pid}/task/{task}")[0]
            wait = "a wait that may not be read"
            with suppress(OSError):
                wait = (base / "wchan").read_text().strip("\0\n ") or "no wait"
            lines.append(f"  {task} {name}: {_STATES.get(state, '?')}, in {wait}")
    except OSError:
        pass
    return "".join(f"{line}\n" for line in lines)
