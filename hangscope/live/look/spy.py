"""Stacks of processes by py-spy, where it is installed: they need nothing of the process, and no GIL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

_PATIENCE = 10.0  # seconds for one process; some tenths are usual


@cache
def open_program() -> int | None:
    """Open py-spy's program, found beside this Python or on PATH; return the descriptor, None where it is missing.

    Started through its descriptor, it may lie in a folder that only root can enter, and still be used after root has
    become the user of the job.
    """
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.exists() else shutil.which("py-spy")
    return os.open(program, os.O_RDONLY) if program else None


class Spy:
    """py-spy, where it is installed and may look into other processes."""

    def __init__(self) -> None:
        self._program = open_program()
        missing = self._program is None
        self.refusal = "py-spy is not installed (pip install 'hangscope[capture]')" if missing else ""

    def stacks(self, pid: int) -> str:
        """Return the stacks of one process as py-spy prints them, "" where it cannot (`refusal` says why)."""
        if self._program is None or self.refusal:
            return ""
        words = ["dump", "--pid", str(pid), "--full-filenames", "--nonblocking"]
        try:
            done = subprocess.run(
                [f"/proc/self/fd/{self._program}", *words],
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
                stdin=subprocess.DEVNULL,
                pass_fds=[self._program],
                env={**os.environ, "RUST_BACKTRACE": "0"},
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            self.refusal = f"py-spy did not answer: {error}"
            return ""
        text = done.stdout.decode("utf-8", "replace")
        if done.returncode == 0 and "Thread " in text:
            return text
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        if any("ermission" in line for line in said):
            self.refusal = "py-spy may not look into other processes here (it needs the ptrace capability)"
        return ""
