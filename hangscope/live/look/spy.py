"""Stacks of processes by py-spy, where it is installed: they need nothing of the process, and no GIL."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

_PATIENCE = 10.0  # seconds for one process; some tenths are usual


class Spy:
    """py-spy, found beside this Python or on PATH."""

    def __init__(self) -> None:
        beside = Path(sys.executable).with_name("py-spy")
        self.program = str(beside) if beside.exists() else shutil.which("py-spy")
        self.refusal = "" if self.program else "py-spy is not installed (pip install 'hangscope[capture]')"

    def stacks(self, pid: int) -> str:
        """Return the stacks of one process as py-spy prints them, "" where it cannot (`refusal` says why)."""
        if not self.program or self.refusal:
            return ""
        try:
            done = subprocess.run(
                [self.program, "dump", "--pid", str(pid), "--full-filenames", "--nonblocking"],
                capture_output=True,
                timeout=_PATIENCE,
                check=False,
                stdin=subprocess.DEVNULL,
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
