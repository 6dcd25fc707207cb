"""The nodes of a job that share a folder: who else is there, who writes the one report, and for how long to wait.

Each watcher has a file of its own in `nodes/`, which it touches every few seconds; the one that first makes
`nodes/reporter` writes the report.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

_SAY = 5.0  # s at least between two signs of a kind
_FRESH = 15.0  # s after its last sign of life for which a node is taken for alive
_STARTING = 3.0  # s that a run which has just made its folder gets to show its first sign of life
_JOB = ("SLURM_JOB_ID", "SLURM_RESTART_COUNT", "SLURM_STEP_ID", "PBS_JOBID", "LSB_JOBID")


class Nodes:
    """The part of one node in the folder of a run."""

    def __init__(self, folder: Path, run: int = 0) -> None:
        self._folder = folder / "nodes"
        self.name = f"{_host()}.{run or os.getpid()}"
        self._shown: dict[str, float] = {}  # when
        self._folder.mkdir(parents=True, exist_ok=True)
        (self._folder / f"{self.name}.here").write_text(_job())

    def show(self, what: str) -> None:
        """Show that this node is still `here`, that ranks of it make progress or are at work (`works`), or that it has left what it has (`done`).

        Others see it when their disk does.
        """
        if time.monotonic() - self._shown.get(what, -_SAY) >= _SAY:
            with suppress(OSError):
                (self._folder / f"{self.name}.{what}").touch()
                self._shown[what] = time.monotonic()

    def has(self, ranks: Iterable[int]) -> None:
        """Say which ranks were seen on this node."""
        with suppress(OSError):
            (self._folder / f"{self.name}.ranks").write_text(json.dumps(sorted(ranks)))

    def ranks(self) -> dict[str, list[int]]:
        """Return which ranks were seen on each host."""
        found: dict[str, list[int]] = {}
        for path in sorted(self._folder.glob("*.ranks")):
            with suppress(OSError, ValueError):
                found.setdefault(path.stem.rpartition(".")[0], []).extend(json.loads(path.read_text()))
        return found

    def works_elsewhere(self) -> int:
        """Return a number that changes when another node shows that it is at work."""
        found = 0
        for path in self._folder.glob("*.works"):
            with suppress(OSError):
                found += path.stat().st_mtime_ns if path.stem != self.name else 0
        return found

    def others(self) -> set[str]:
        """Return the other nodes that take part."""
        return {path.stem for path in self._folder.glob("*.here")} - {self.name}

    def reporter(self) -> str:
        """Return the node that writes the report: the first that asks."""
        path = self._folder / "reporter"
        try:
            with open(path, "x") as file:
                file.write(self.name)
        except FileExistsError:
            with suppress(OSError):
                return path.read_text()
            return ""
        except OSError:
            pass  # nobody can be asked; what can be said is said here
        return self.name

    def late(self) -> set[str]:
        """Return the other nodes that have not left yet what they have."""
        return self.others() - {path.stem for path in self._folder.glob("*.done")}


def may_join(folder: Path) -> bool:
    """Whether the run in a folder is our own job's, going on on another node.

    A node of it has shown within the last seconds, by the clock of the disk, that it is alive. Our own host is not in it
    yet, no report is written, and the scheduler's numbers are the same. A run that is only starting is given a moment to show
    who it is.
    """
    nodes = folder / "nodes"

    def here() -> list[Path]:
        return [path for path in nodes.glob("*.here") if path.stat().st_size]

    wait_until(lambda: bool(here()), _STARTING)
    found = here()
    ours = any(path.stem.rpartition(".")[0] == _host() for path in found)
    if ours or (folder / "report.json").exists():
        return False
    now = _clock(nodes)
    alive = [p for p in found if now - p.stat().st_mtime < _FRESH and not p.with_suffix(".done").exists()]
    return any(path.read_text() == _job() for path in alive)


def wait_until(holds: Callable[[], bool], seconds: float, hurry: Callable[[], bool] = lambda: False) -> None:
    """Wait up to so many seconds, unless in a `hurry`, until a condition holds that depends on other nodes."""
    deadline = time.monotonic() + seconds
    while not holds() and not hurry() and time.monotonic() < deadline:
        time.sleep(0.1)


def _clock(nodes: Path) -> float:
    """Return the current time by the clock of the file system, which may be that of a server, in seconds since the epoch."""
    probe = nodes / f".{_host()}.{os.getpid()}"
    probe.touch()
    now = probe.stat().st_mtime
    probe.unlink()
    return now


def _host() -> str:
    return socket.gethostname().split(".")[0]


def _job() -> str:
    return " ".join(os.environ.get(name, "-") for name in _JOB)
