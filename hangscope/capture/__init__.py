"""Evidence from inside the ranks, for jobs that are not started by `hangscope run`: opt-in, and it never raises.

`start(folder)` is what the callbacks of `hangscope.capture.lightning`, `.trainer` and `.ray` call; a training script may
call it itself. Nothing here imports torch; the callbacks import their framework only.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path

from hangscope.live.agent import hangscope_agent as agent

__all__ = ["leave_exception", "start"]


def start(folder: str | os.PathLike[str]) -> bool:
    """Start the agent in this rank, and return whether it runs.

    From then on `touch FOLDER/trigger` (on a disk that all nodes see) leaves all ranks' stacks and recorders, a rank
    that stalls for half a minute leaves its own.
    """
    try:
        path = Path(folder).absolute()
        path.mkdir(parents=True, exist_ok=True)
        os.environ.setdefault("HANGSCOPE_DIR", str(path))
        agent.start()
        return True
    except Exception as error:  # a job must not fail because nobody could watch it
        print(f"hangscope: no evidence will be left in {folder}: {error}", file=sys.stderr)
        return False


def leave_exception(folder: str | os.PathLike[str], rank: int, raised: str | BaseException) -> Path | None:
    """Write what a rank raised to the folder; return the file, None where it could not be written."""
    try:
        text = raised if isinstance(raised, str) else "".join(traceback.format_exception(raised))
        path = Path(folder, "at_end", f"rank_{rank}.err")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path
    except Exception as error:
        print(f"hangscope: {folder} cannot be written: {error}", file=sys.stderr)
        return None
