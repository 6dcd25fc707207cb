"""One look at a job that is alive: the stacks of all its ranks on this node, and what their recorders hold.

Read-only: no process is paused, traced by gdb or sent a signal that it does not catch. The cheapest source is asked
first: the agent in the rank, then faulthandler's signal (which needs no GIL), then py-spy, then torch's debug server
where the job has one, then the kernel. Processes of other users are left alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import RunFolder, leave
from hangscope.live.look.activity import Activity, activity_of, leave_activity
from hangscope.live.look.debug_server import ask_debug_server
from hangscope.live.look.meeting import leave_meetings
from hangscope.live.look.pipe import ask_pipe
from hangscope.live.look.processes import Process, is_held, kernel_statements
from hangscope.live.look.spy import Spy
from hangscope.live.look.status import read_status
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase

GAP = 2.0  # seconds between two looks: what has not moved in between stands still
_ANSWER = 4.0  # s for agents to begin to answer; they look once a second
_WRITE = 15.0  # s for those that have begun: a busy machine, or a slow disk
_OTHERS = 6.0  # seconds for ranks of other nodes, on the shared disk
_AT_ONCE = 8  # processes that are looked at in parallel


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
    own = number is None
    try:
        target.mkdir()
    except FileExistsError:
        own = False
    taken = Taken(target, asked, own, activity)
    if before is not None:
        leave_activity(target, processes, before, activity)
    foreign = {p.rank for p in processes if p.is_rank and p.rank is not None and not p.is_ours}
    processes = [process for process in processes if process.is_ours]
    ranks = [process for process in processes if process.is_rank]
    leave_meetings(target, processes)
    asks = number is None and (everywhere or any(p.folder == str(folder.path) for p in processes))
    if asks:
        leave(folder.path / "trigger", f"{asked}\n".encode())  # asks all ranks for a capture
    _wait_for_agents(target, ranks, asks, everywhere, hurry)
    spy = Spy()
    _ask(ranks, processes, taken, spy)
    own_ranks = {process.rank for process in ranks if process.rank is not None}
    stackless = own_ranks - taken.stacks.keys()
    for process in ranks:
        if process.rank in stackless or is_held(process.pid):
            leave(target / f"kernel_rank_{process.rank}.txt", kernel_statements(process.pid).encode())
    if foreign:
        taken.missing.append(f"nothing of {ranks_phrase(foreign)}: another user's processes are left alone")
    if stackless:
        why = f": {spy.refusal}" if spy.refusal else ""
        taken.missing.append(f"no Python stacks of {ranks_phrase(stackless)}{why}")
    answered = {rank for rank, how in taken.stacks.items() if how == "agent"}
    unrecorded = [process for process in ranks if process.rank in own_ranks - taken.recorders]
    taken.missing += _why_unrecorded(unrecorded, answered, folder)
    return taken


def _ask(ranks: Sequence[Process], processes: Sequence[Process], taken: Taken, spy: Spy) -> None:
    """Collect what each rank's agent did not deliver: stacks, then recorder dumps, then both from torch's debug server."""
    target = taken.folder
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        hows = list(pool.map(lambda process: _stacks_of_rank(process, processes, target, spy), ranks))
    for process, how in zip(ranks, hows, strict=True):
        assert process.rank is not None
        if how:
            taken.stacks[process.rank] = how
        if ask_pipe(process, target):
            taken.recorders.add(process.rank)
    own_ranks = {process.rank for process in ranks if process.rank is not None}
    taken.recorders |= _recorders(target)
    if not own_ranks <= taken.stacks.keys() & taken.recorders:
        ask_debug_server(processes, target)
        taken.recorders |= _recorders(target)
        given = {rank for rank in own_ranks if _stack_file(target, rank).exists()}
        taken.stacks |= dict.fromkeys(given - taken.stacks.keys(), "torch's debug server")


def _why_unrecorded(ranks: Sequence[Process], answered: set[int], folder: RunFolder) -> list[str]:
    """Return one sentence for each reason why there is no recorder of some ranks; the agents of some have `answered`."""
    reasons: dict[str, set[int]] = {}
    for process in ranks:
        status = read_status(process.pid)
        if status is None:
            why = "no agent of `hangscope run`, no dump pipe and no debug server of torch gave one"
        elif process.rank not in answered and process.folder != str(folder.path):
            why = f"the agent answers in {process.folder} only: `hangscope capture --job {process.folder}`"
        elif process.rank not in answered:
            why = f"its agent did not answer within {_ANSWER:g} s: stopped, or the interpreter is blocked"
        elif not status.world_size:
            why = "not in a process group"
        else:
            why = "its backend records no calls"
        reasons.setdefault(why, set()).add(process.rank or 0)
    return [f"no recorder of {ranks_phrase(who)}: {why}" for why, who in reasons.items()]


def _recorders(folder: Path) -> set[int]:
    """Return the ranks whose recorder a capture holds."""
    files = folder.glob("*trace_rank_*")
    return {int(path.name.removesuffix(".json").rpartition("_")[2]) for path in files}


def _wait_for_agents(
    target: Path, ranks: Sequence[Process], asked: bool, everywhere: bool, hurry: Callable[[], bool]
) -> None:
    """Wait until the agents of this node have answered, and those of others where this node `asked` them."""
    world = max((p.world_size or 0 for p in ranks), default=0)
    here = {p.rank for p in ranks if p.rank is not None and proc.anonymous(p.pid, proc.STATUS_NAME)}
    others = asked and (everywhere or world > len(ranks))
    started = time.monotonic()
    while (here or others) and not hurry():
        answered = {int(path.stem.rpartition("_")[2]) for path in target.glob("stack_rank_*.txt")}
        waited = time.monotonic() - started
        is_being_written = waited < _WRITE and any(target.glob(".stack_rank_*"))
        if waited >= (_OTHERS if others else _ANSWER) and not is_being_written:
            return
        if here <= answered and (not others or 0 < world <= len(answered)):
            return
        time.sleep(0.1)


def _stack_file(target: Path, rank: int) -> Path:
    return target / f"stack_rank_{rank}.txt"


def _stacks_of_rank(process: Process, processes: Sequence[Process], target: Path, spy: Spy) -> str:
    """Write the stacks of a rank and its workers, and return how they were got, "" where there are none."""
    assert process.rank is not None
    file = _stack_file(target, process.rank)
    if file.exists():
        return "agent"
    how, text = _stacks(process.pid, spy)
    if not text:
        return ""
    parts = [_headed(process.pid, f"rank {process.rank}", text)]
    for worker in processes:
        if worker.worker_of == process.pid and worker.rank == process.rank:
            parts.append(_headed(worker.pid, f"worker of rank {process.rank}", _stacks(worker.pid, spy)[1]))
    leave(file, "\n".join(filter(None, parts)).encode())
    return how


def _headed(pid: int, what: str, text: str) -> str:
    """Return stacks below a line that says whose they are; py-spy's own has the whole command line."""
    lines = [line for line in text.splitlines() if not line.startswith(f"Process {pid}:")]
    return "\n".join([f"Process {pid}: {what}", *lines]) + "\n" if text else ""


def _stacks(pid: int, spy: Spy) -> tuple[str, str]:
    text = proc.stacks_of(pid)
    return ("signal", text) if text else ("py-spy", spy.stacks(pid))
