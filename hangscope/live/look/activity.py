"""Which ranks compute while their peers wait for them: what their main threads did between two captures.

A rank that computes may yet enter the collective; one that runs no Python code and whose stack does not change may spin in a
wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from hangscope.live.folder import leave
from hangscope.live.look.processes import Process, cpu_seconds, read_status
from hangscope.model.dataclass import dataclass

_COMPUTES = 0.2  # of a processor
_LONGEST = 60.0  # s between two captures that are compared
_SAYS = {True: ", in Python code", False: ", in one place", None: ""}  # of a main thread that moved


@dataclass(frozen=True, slots=True)
class Work:
    """What a main thread did between two moments: its share of a processor, and whether its stack changed or it ran Python code (None: not known)."""

    share: float
    moved: bool | None


@dataclass(frozen=True, slots=True)
class Activity:
    """The main threads at one moment (s): by process id, the processor seconds that each has used or waited for, and how often its stack was seen to change."""

    time: float
    cpu: Mapping[int, float]
    moves: Mapping[int, int]

    def since(self, before: Activity) -> dict[int, Work]:
        """Return the processes that computed since an earlier moment."""
        elapsed, found = max(1e-3, self.time - before.time), {}
        for pid, used in self.cpu.items():
            share = (used - before.cpu.get(pid, used)) / elapsed
            if share >= _COMPUTES:
                known = pid in self.moves and pid in before.moves
                found[pid] = Work(share, self.moves[pid] > before.moves[pid] if known else None)
        return found


def activity_of(processes: Iterable[Process]) -> Activity:
    """Return the activity of ranks now."""
    pids = [process.pid for process in processes if process.is_rank]
    moves = {pid: status.moves for pid in pids if (status := read_status(pid)) is not None}
    return Activity(time.monotonic(), {pid: cpu_seconds(pid) for pid in pids}, moves)


def leave_activity(target: Path, processes: Iterable[Process], before: Activity, now: Activity) -> None:
    """Write one line about each rank that computed between two captures; the analysis reads it (Computing). Raises OSError."""
    work = now.since(before) if now.time - before.time < _LONGEST else {}
    for process in processes:
        if process.is_rank and (does := work.get(process.pid)) is not None:
            text = f"process {process.pid} is computing: {min(100, round(100 * does.share))}% of a processor{_SAYS[does.moved]}\n"
            leave(target / f"activity_rank_{process.rank}.txt", text.encode())


def computing_in(target: Path) -> dict[int, bool]:
    """Return the ranks of all nodes that computed by the lines in a capture, and whether each may have moved."""
    found = {}
    for path in target.glob("activity_rank_*.txt"):
        with suppress(OSError, ValueError):
            found[int(path.stem.rpartition("_")[2])] = _SAYS[False] not in path.read_text()
    return found
