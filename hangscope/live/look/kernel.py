"""What the kernel reports about a process: its state, and where each thread waits."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc

_HELD = {"D": "in an uninterruptible wait", "T": "stopped", "t": "traced"}
_STATES = {"R": "running", "S": "sleeping", "Z": "ended", **_HELD}
_THREADS = 64


def is_held(pid: int) -> bool:
    """Return whether a process is stopped, traced or in an uninterruptible wait, so that its stack is not its own doing."""
    try:
        return proc.stat_of(pid)[0] in _HELD
    except (OSError, IndexError):
        return False


def statements(pid: int) -> str:
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
