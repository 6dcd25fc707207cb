"""What `hangscope run` loads into the ranks: it waits in a thread, and writes evidence when it is asked to.

A package of the standard library only, for any Python from 3.8; it imports no torch: it looks at what the program has
imported itself. Every entry point catches everything; a job must never notice that this is here. Only the thread touches the
disk, so a disk that hangs holds up the thread alone. The program's streams, signal handlers and descriptors stay its own: of
SIGTERM nothing is changed, descriptors have high numbers and are used only while they are still ours (`descriptor.py`).

- A new modification time of `$HANGSCOPE_DIR/trigger` asks for `capture_NN/stack_rank_R.txt` and, if there is a process
  group, `capture_NN/comm_lib_trace_rank_R` (gloo, nccl2) or `nccl_trace_rank_R`. The stack file is renamed last: it
  says that the rank has answered.
- The signal STACK_SIGNAL makes C code of faulthandler write all stacks into an anonymous file, which works while some
  thread holds the GIL. Who asked reads it as /proc/PID/fd/N. Loader workers answer in this way only.
- An anonymous file shows how far the rank has come (`hangscope.live.look.processes`).
- What it leaves unasked, and where, is in the docstring of `hangscope.live.folder`.
"""

import os
import sys
from typing import Optional

from .agent import Agent

_agent: Optional[Agent] = None


def start() -> None:
    """Start the agent of this process, if the job is run by `hangscope run`."""
    global _agent
    folder = os.environ.get("HANGSCOPE_DIR") or os.environ.get("PYTHON_HANGSCOPE_DIR", "")
    if not folder or _agent is not None or not _is_main_interpreter():
        return
    # what `hangscope run` has loaded, if a script starts one itself
    copy = sys.modules.get("hangscope_agent")
    if copy is not None and copy.__name__ != __name__ and getattr(copy, "_agent", None) is not None:
        return
    _agent = Agent(folder)
    os.register_at_fork(after_in_child=_after_fork)


def _is_main_interpreter() -> bool:
    """Whether this is no sub-interpreter: one that ends with a daemon thread aborts the process."""
    for name in ("_interpreters", "_xxsubinterpreters"):
        try:
            module = __import__(name)
            now, main = module.get_current(), module.get_main()
        except (ImportError, AttributeError):
            continue
        return bool(
            (now[0] if isinstance(now, tuple) else now) == (main[0] if isinstance(main, tuple) else main)
        )
    return True


def _after_fork() -> None:
    try:
        if _agent is not None:
            _agent.after_fork()
    except Exception:
        pass
