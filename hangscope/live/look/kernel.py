"""What the kernel reports about a process: its state, and where each thread waits."""

from __future__ import annotations

import os
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "in an uninterruptible wait",
    "T": "stopped",
    "Z": "ended",
    "t": "traced",
}
_THREADS = 64


def is_held(pid: int) -> bool:
    """Return whether a process is stopped, traced or in an uninterruptible wait, so that its stack is not its own doing."""
    try:
        return proc.stat_of(pid)[0] in ("T", "t", "D")
    except (OSError, IndexError):
        return False


def statements(pid: int) -> str:
    """Return one line for the process and one for each of its first threads, "" where it is gone."""
    lines = []
    try:
        state = proc.stat_of(pid)[0]
        lines.append(f"process {pid} is {_STATES.get(state, state)}")
        for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int)[:_THREADS]:
            base = f"/proc/{pid}/task/{task}"
            name = Path(base, "comm").read_text(errors="replace").strip()
            lines.append(
                f"  {task} {name}: {_STATES.get(proc.stat_of(f'{pid}/task/{task}')[0], '?')}, in {_waits_in(base)}"
            )
    except OSError:
        pass
    return "\n".join(lines) + ("\n" if lines else "")


def _waits_in(base: str) -> str:
    try:
        return Path(base, "wchan").read_text().strip("\0\n ") or "no wait"
    except OSError:
        return "a wait that may not be read"
