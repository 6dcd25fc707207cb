"""Small jobs that are really run under `hangscope run`: ranks without torch, and what starts and ends them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

#: Starts as many ranks of `rank.py` as its argument says, and ends as the first of them that fails.
LAUNCHER = """
import os, subprocess, sys
n = int(sys.argv[1])
ranks = [
    subprocess.Popen([sys.executable, "rank.py"], env={**os.environ, "RANK": str(r), "WORLD_SIZE": str(n)})
    for r in range(n)
]
sys.exit(max(rank.wait() for rank in ranks))
"""


def write_job(folder: Path, rank: str) -> None:
    """Write the launcher and the program of each rank."""
    (folder / "launch.py").write_text(LAUNCHER)
    (folder / "rank.py").write_text(rank)


def hangscope(*words: str) -> list[str]:
    """Return the command line of a call."""
    return [sys.executable, "-m", "hangscope", *words]


def watched(*words: str) -> list[str]:
    """Return the command line of a command under watch, with everything in `left/`."""
    return hangscope("run", "--dir", "left", *words)


class Place(type(Path())):  # type: ignore[misc]
    """The folder in which a job runs, with the environment of its processes."""

    environment: dict[str, str]

    def ran(
        self, command: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command here to its end."""
        return subprocess.run(
            command, cwd=self, env=environment or self.environment, capture_output=True, text=True, timeout=180, check=False
        )  # fmt: skip

    @contextmanager
    def started(
        self, command: list[str], environment: dict[str, str] | None = None, *, first: str = ""
    ) -> Iterator[subprocess.Popen[str]]:
        """Yield a command that runs here, as soon as it has printed its `first` line if one is given."""
        with started(command, self, environment or self.environment) as process:
            assert process.stdout is not None and (not first or process.stdout.readline() == first)
            yield process

    def below(self, name: str) -> Place:
        """Return a new folder in this one as the place of a job."""
        place = Place(self, name)
        place.mkdir()
        place.environment = self.environment
        return place

    @property
    def left(self) -> Path:
        """Return the folder of the run."""
        return Path(self, "left")

    def report(self) -> dict[str, Any]:
        """Return the report of the run."""
        report: dict[str, Any] = json.loads((self.left / "report.json").read_text())
        return report

    def verdict(self) -> dict[str, Any]:
        """Return the verdict of the run's report."""
        verdict: dict[str, Any] = self.report()["verdict"]
        return verdict


@contextmanager
def started(command: list[str], folder: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Yield a running command; nothing of it is left behind."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        for pid in left_in(folder):
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        process.kill()
        process.communicate()


def left_in(folder: Path) -> list[int]:
    """Return the processes that work in a folder."""
    found = []
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.readlink(f"/proc/{name}/cwd") == str(folder):
                found.append(int(name))
    return found


def until(condition: Callable[[], bool], patience: float = 20.0) -> None:
    """Wait for something, and fail where it does not come."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)
