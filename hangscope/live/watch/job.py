"""The command on this node: its processes, which of them are ranks, how far these have come, and what it prints into files.

Its stdout and stderr are those of `hangscope run`; what the watcher itself prints there is no output of the job. What goes to a
terminal or a pipe is not ours to read; there the ranks' and launchers' own agents keep what Python prints.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import RunFolder
from hangscope.live.look.processes import Process, cpu_seconds, job_of, of_run, read_status
from hangscope.live.watch.nodes import Nodes
from hangscope.live.watch.progress import Look, written
from hangscope.live.watch.reporting import Reporting
from hangscope.model.rankset import ranks_phrase

_SEARCH = 5.0  # s between two searches for its processes, once it has started
_START = 30.0  # s in which they are searched for more often
_AGENTS = 15.0  # s after which a Python rank without an agent has none

_STDERR = 2
_MOST = 64 * 2**20  # bytes of a stream that are copied, its last ones


class Streams:
    """The stdout and stderr of a process, as far as they are regular files; `own` is what this process prints on its stderr."""

    def __init__(self, pid: int, own: Sequence[bytes] = ()) -> None:
        self._streams: list[tuple[str, int, int]] = []  # name, descriptor, and where the job's output starts
        self._own, self._before = own, len(own)
        files = set()
        for number, name in ((1, "out"), (2, "err")):
            path = f"/proc/{pid}/fd/{number}"
            with suppress(OSError, ValueError):
                found = os.stat(path)
                if stat.S_ISREG(found.st_mode) and (found.st_dev, found.st_ino) not in files:
                    files.add((found.st_dev, found.st_ino))
                    info = proc.fields_of(f"{pid}/fdinfo/{number}")
                    at = found.st_size if int(info["flags"], 8) & os.O_APPEND else int(info["pos"])
                    self._streams.append((name, os.open(path, os.O_RDONLY | os.O_CLOEXEC), at))

    @property
    def bytes(self) -> int:
        """Return how many bytes the command has printed."""
        printed = sum(max(0, os.fstat(number).st_size - start) for _, number, start in self._streams)
        ours = any(os.path.sameopenfile(number, _STDERR) for _, number, _ in self._streams)
        return printed - sum(map(len, self._own[self._before :])) if ours else printed

    def keep(self, folder: Path, name: str) -> None:
        """Copy what the command printed into a folder. Raises OSError."""
        for kind, number, start in self._streams:
            with open(number, "rb", closefd=False) as file:
                file.seek(max(start, os.fstat(number).st_size - _MOST))
                data = file.read(_MOST)
            for text in self._own[self._before :]:
                data = data.replace(text, b"", 1)
            (folder / f"{name}.{kind}").write_bytes(data)


class Job:
    """The command of one run and all processes below it."""

    def __init__(self, folder: RunFolder, nodes: Nodes, reporting: Reporting, run: int) -> None:
        self._folder, self._nodes, self._reporting = folder, nodes, reporting
        self._searched = -_SEARCH
        self._agentless: set[int] = set()  # ranks' processes that had no agent at the last search
        self._launching = False  # a launcher has started no process yet
        self.streams = Streams(run, reporting.printed)
        self.processes: list[Process] = []
        self.pid = 0
        self._since = time.monotonic()

    def search(self, *, now: bool = False) -> None:
        """Search for its processes, if it is time for that, or `now`."""
        moment = time.monotonic()
        gap = _SEARCH if moment - self._since >= _START else 1.0
        if self.pid and (now or moment - self._searched >= gap):
            self._searched = moment
            self.processes = job_of([self.pid])
            self._reporting.saw(self.processes)
            launchers = [p.pid for p in self.processes if p.is_launcher]
            self._launching = bool(launchers) and not any(map(proc.children_of, launchers))
            self._check_agents()

    def _check_agents(self) -> None:
        """Report ranks without an agent: Python was told to ignore the environment, or the launcher dropped it."""
        pythons = [p for p in self.processes if p.is_rank and p.is_python]
        without = {p.pid: p.rank or 0 for p in pythons if not proc.anonymous(p.pid, proc.STATUS_NAME)}
        before, self._agentless = self._agentless, set(without)
        ranks = {rank for pid, rank in without.items() if pid in before}
        if ranks and self._searched - self._since >= _AGENTS:
            why = "python -I or -E, or a launcher that drops PYTHONPATH"
            tail = "watched by what is written; stacks need py-spy"
            self._reporting.problem(f"no agent in {ranks_phrase(ranks)} ({why}): {tail}")

    def look(self) -> Look:
        """Return how far its ranks have come now."""
        found = [(p, read_status(p.pid)) for p in self.processes if p.worker_of is None]
        ranks = [status for _, status in found if status is not None]
        silent = [p for p, status in found if status is None and p.is_rank]
        return Look(
            time.monotonic(),
            ranks,
            self.streams.bytes,
            {pid: cpu_seconds(pid) for pid in (*(r.pid for r in ranks), *(p.pid for p in silent))},
            self._nodes.works_elsewhere(),
            {p.pid: written(p.pid) for p in silent},
            any(p.is_rank or p.is_launcher for p in self.processes),
            self._launching,
        )

    def left(self) -> list[Process]:
        """Return the ranks of this run that are still there, whoever their parent is."""
        return [p for p in of_run(str(self._folder.path), self._nodes.name) if p.is_rank]
