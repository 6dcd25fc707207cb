"""What `hangscope run` loads into the ranks: it waits in a thread, and leaves evidence when it is asked to.

A package of the standard library only, for any Python from 3.8, of which `hangscope run` puts a copy on PYTHONPATH; it
imports no torch: what is looked at is what the program has imported itself. Every entry point catches everything; a job
must never notice that this is here.

- A new modification time of `$HANGSCOPE_DIR/trigger` asks for `capture_NN/stack_rank_R.txt` and, where a process group
  exists, `capture_NN/comm_lib_trace_rank_R` (gloo, nccl2) or `nccl_trace_rank_R`. The stack file is renamed last: it
  says that the rank has answered.
- The signal STACK_SIGNAL makes C code of faulthandler write all stacks into an anonymous file, which works while some
  thread holds the GIL. Who asked reads it as /proc/PID/fd/N. Loader workers answer in this way only.
- SIGTERM leaves the stacks in `at_end/` before it does what it does; an uncaught exception leaves the recorder there.
- A frontier that stands still leaves both in `stall/`, so that they are there when all is killed at once; they are
  removed when it moves again.
- An anonymous file tells how far the rank has come (`hangscope.live.look.status`).
- What the rank prints through sys.stdout and sys.stderr goes to `logs/restart_N/rank_R.{out,err}` as well.
"""

import os
import sys
from typing import Optional

from .agent import Agent

_agent: Optional[Agent] = None


def start() -> None:
    """Start the agent of this process, if the job is run by `hangscope run`."""
    global _agent
    folder = os.environ.get("HANGSCOPE_DIR", "")
    if not folder or _agent is not None or not os.path.isdir(folder):
        return
    copy = sys.modules.get(
        "hangscope_agent"
    )  # what `hangscope run` has loaded, where a script starts one itself
    if copy is not None and copy.__name__ != __name__ and getattr(copy, "_agent", None) is not None:
        return
    _agent = Agent(folder)
    os.register_at_fork(after_in_child=_after_fork)


def _after_fork() -> None:
    try:
        if _agent is not None:
            _agent.after_fork()
    except Exception:
        pass
