"""One look at a job that is alive: the stacks of all its ranks on this node, and what their recorders hold.

Read-only: no process is paused, traced by gdb or sent a signal that it does not catch. The cheapest source is asked
first: the agent in the rank, then faulthandler's signal (which needs no GIL), then py-spy, then torch's debug server
where the job has one, then the kernel. Processes of other users are left alone.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path
from typing import BinaryIO

from hangscope.export.output import replace_file
from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import RunFolder, leave, ranks_in
from hangscope.live.look.activity import Activity, activity_of, leave_activity
from hangscope.live.look.debug_server import ask_debug_server
from hangscope.live.look.meeting import leave_meetings
from hangscope.live.look.processes import Process, by_rank, is_held, kernel_statements, read_status
from hangscope.live.look.spy import Spy
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase

GAP = 2.0  # seconds between two looks: what has not moved in between stands still
_ANSWER = 4.0  # s for agents to begin to answer; they look once a second
_WRITE = 15.0  # s for those that have begun: a busy machine, or a slow disk
_OTHERS = 6.0  # seconds for ranks of other nodes, on the shared disk
_AT_ONCE = 8  # processes that are looked at in parallel
_DUMP_PATHS = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_OF_PIPE = 3.0  # s: the monitor thread looks at the pipe once a second at most
_MOST_OF_DUMP = 256 << 20  # bytes


@dataclass(slots=True)
class Taken:
    """What one capture got: how each rank's stacks were taken, which ranks left a recorder, and what was not to be had.

    `own` says that this call asked for it, and no other node did.
    """

    folder: Path
    number: int
    own: bool
    activity: Activity
    stacks: dict[int, str] = field(default_factory=dict)
    recorders: set[int] = field(default_factory=set)
    missing: list[str] = field(default_factory=list)


def capture(
    folder: RunFolder,
    processes: Sequence[Process],
    *,
    number: int | None = None,
    everywhere: bool = False,
    hurry: Callable[[], bool] = lambda: False,
    before: Activity | None = None,
) -> Taken:
    """Take one capture of these processes, and of the ranks of other nodes that see the folder's trigger.

    `number` is that of a capture which another node has asked for; without it, this one asks: `everywhere` says that
    other nodes are known to be there. `hurry` ends all waiting; `before` is the activity of the capture before.
    """
    activity = activity_of(processes)
    asked = folder.captures() + 1 if number is None else number
    target = folder.capture(asked)
    taken = Taken(target, asked, number is None, activity)
    try:
        target.mkdir()
    except FileExistsError:
        taken.own = False
    if before is not None:
        leave_activity(target, processes, before, activity)
    foreign = {p.rank for p in processes if p.is_rank and p.rank is not None and not p.is_ours}
    processes = [process for process in processes if process.is_ours]
    ranks = [process for process in processes if process.is_rank]
    own_ranks = {process.rank for process in ranks if process.rank is not None}
    leave_meetings(target, processes)
    asks = number is None and (everywhere or any(p.folder == str(folder.path) for p in processes))
    if asks:
        leave(folder.path / "trigger", f"{asked}\n".encode())  # asks all ranks for a capture
    _wait_for_agents(target, ranks, asks, everywhere, hurry)
    spy = Spy()
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        hows = list(pool.map(lambda process: _stacks_of_rank(process, processes, target, spy), ranks))
    taken.stacks = {process.rank or 0: how for process, how in zip(ranks, hows, strict=True) if how}
    taken.recorders = {process.rank or 0 for process in ranks if _ask_pipe(process, target)}
    taken.recorders |= ranks_in(target, "*trace_rank_*")
    if not own_ranks <= taken.stacks.keys() & taken.recorders:
        ask_debug_server(processes, target)
        taken.recorders |= ranks_in(target, "*trace_rank_*")
        given = ranks_in(target, "stack_rank_*") & own_ranks - taken.stacks.keys()
        taken.stacks |= dict.fromkeys(given, "torch's debug server")
    stackless = own_ranks - taken.stacks.keys()
    for process in ranks:
        if process.rank in stackless or is_held(process.pid):
            leave(target / f"kernel_rank_{process.rank}.txt", kernel_statements(process.pid).encode())
    if foreign:
        taken.missing.append(f"nothing of {ranks_phrase(foreign)}: another user's processes are left alone")
    if stackless:
        why = f": {spy.refusal}" if spy.refusal else ""
        taken.missing.append(f"no Python stacks of {ranks_phrase(stackless)}{why}")
    unrecorded = [process for process in ranks if process.rank not in taken.recorders]
    reasons = by_rank((process.rank or 0, _why_unrecorded(process, taken, folder)) for process in unrecorded)
    taken.missing += [f"no recorder of {text}" for text in reasons]
    return taken


def _why_unrecorded(process: Process, taken: Taken, folder: RunFolder) -> str:
    """Return why there is no recorder of a rank."""
    status = read_status(process.pid)
    if status is None:
        return "no agent of `hangscope run`, no dump pipe and no debug server of torch gave one"
    if taken.stacks.get(process.rank or 0) == "agent":
        return "its backend records no calls" if status.world_size else "not in a process group"
    if process.folder != str(folder.path):
        return f"the agent answers in {process.folder} only: `hangscope capture --job {process.folder}`"
    return f"its agent did not answer within {_ANSWER:g} s: stopped, or the interpreter is blocked"


def _wait_for_agents(
    target: Path, ranks: Sequence[Process], asked: bool, everywhere: bool, hurry: Callable[[], bool]
) -> None:
    """Wait until the agents of this node have answered, and those of others where this node `asked` them."""
    world = max((p.world_size or 0 for p in ranks), default=0)
    here = {p.rank for p in ranks if p.rank is not None and proc.anonymous(p.pid, proc.STATUS_NAME)}
    others = asked and (everywhere or world > len(ranks))
    started = time.monotonic()
    while (here or others) and not hurry():
        answered, waited = ranks_in(target, "stack_rank_*"), time.monotonic() - started
        is_being_written = waited < _WRITE and any(target.glob(".stack_rank_*"))
        if waited >= (_OTHERS if others else _ANSWER) and not is_being_written:
            return
        if here <= answered and (not others or 0 < world <= len(answered)):
            return
        time.sleep(0.1)


def _stacks_of_rank(process: Process, processes: Sequence[Process], target: Path, spy: Spy) -> str:
    """Write the stacks of a rank and its workers, and return how they were got, "" where there are none."""
    file = target / f"stack_rank_{process.rank}.txt"
    if file.exists():
        return "agent"
    how, text = _stacks(process, f"rank {process.rank}", spy)
    if text:
        workers = [p for p in processes if p.worker_of == process.pid and p.rank == process.rank]
        texts = [_stacks(worker, f"worker of rank {process.rank}", spy)[1] for worker in workers]
        leave(file, "\n".join(filter(None, [text, *texts])).encode())
    return how


def _stacks(process: Process, what: str, spy: Spy) -> tuple[str, str]:
    """Return how the stacks of a process were got and the stacks, below a line that says whose they are; two empty texts if there are none."""
    how, text = "signal", proc.stacks_of(process.pid)
    if not text:
        how, text = "py-spy", spy.stacks(process.pid)
    if not text:
        return "", ""
    head = f"Process {process.pid}:"  # py-spy's own has the whole command line
    lines = [line for line in text.splitlines() if not line.startswith(head)]
    return how, "\n".join([f"{head} {what}", *lines]) + "\n"


def _ask_pipe(process: Process, target: Path) -> bool:
    """Ask one rank for a dump through NCCL's pipe, put it into `target`, and return whether it came.

    A write to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe` makes the rank dump to where the watchdog does, and it goes on: torch
    2.4 to 2.14 and `nccl-legacy` (ProcessGroupNCCL.cpp, class DumpPipe). Both paths are the rank's own words: only a pipe is
    written to, and only a file of this user is copied, up to a size.
    """
    try:
        environment, _ = proc.process_of(process.pid)
        prefix = next(filter(None, map(environment.get, _DUMP_PATHS)), "")
        pipe = environment.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
        if not pipe or not prefix:
            return False
        dump, copy = Path(f"{prefix}{process.rank}"), target / f"nccl_trace_rank_{process.rank}"
        before = dump.lstat().st_mtime_ns if os.path.lexists(dump) else 0
        _write_to_pipe(f"{pipe}{process.rank}.pipe")
        deadline = time.monotonic() + _OF_PIPE
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if os.path.lexists(dump) and dump.lstat().st_mtime_ns > before:
                size = dump.lstat().st_size
                time.sleep(0.2)
                if dump.lstat().st_size == size:
                    replace_file(copy, lambda out: _copy_dump(dump, out))
                    return True
    except OSError:
        pass
    return False


def _write_to_pipe(pipe: str) -> None:
    """Write to a pipe that somebody reads; raise OSError where there is none."""
    if not stat.S_ISFIFO(os.lstat(pipe).st_mode):
        raise OSError("no pipe")
    number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    with os.fdopen(number, "wb", buffering=0) as file:
        file.write(b"1")


def _copy_dump(dump: Path, out: BinaryIO) -> None:
    """Copy a dump; raise OSError where it is no file of this user, or too large."""
    number = os.open(dump, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY)
    with os.fdopen(number, "rb") as file:
        info, left = os.fstat(number), _MOST_OF_DUMP  # it may grow
        if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid() or info.st_size > left:
            raise OSError("no dump")
        while left > 0 and (data := file.read(min(1 << 20, left))):
            left -= out.write(data)
