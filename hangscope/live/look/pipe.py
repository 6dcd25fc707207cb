"""NCCL's dump pipe: a write to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe` makes the rank dump, and it goes on.

torch 2.4 to 2.14 and `nccl-legacy` (ProcessGroupNCCL.cpp, class DumpPipe). The dump goes to where the watchdog's goes.
"""

from __future__ import annotations

import os
import shutil
import stat
import time
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.look.processes import Process

_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PATIENCE = 3.0  # seconds: the monitor thread looks at the pipe once a second at most


def ask_pipe(process: Process, target: Path) -> bool:
    """Ask one rank for a dump through its pipe, put it into `target`, and return whether it came."""
    try:
        environment, _ = proc.process_of(process.pid)
    except OSError:
        return False
    prefix = next((environment[name] for name in _PREFIXES if environment.get(name)), "")
    pipe = environment.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
    if not pipe or not prefix:
        return False
    dump = Path(f"{prefix}{process.rank}")
    try:
        if not stat.S_ISFIFO(os.stat(f"{pipe}{process.rank}.pipe").st_mode):
            return False
        before = dump.stat().st_mtime_ns if dump.exists() else 0
        writer = os.open(
            f"{pipe}{process.rank}.pipe", os.O_WRONLY | os.O_NONBLOCK
        )  # fails where nobody reads
        os.write(writer, b"1")
        os.close(writer)
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if dump.exists() and dump.stat().st_mtime_ns > before:
                size = dump.stat().st_size
                time.sleep(0.2)
                if dump.stat().st_size == size:
                    shutil.copyfile(dump, target / f"nccl_trace_rank_{process.rank}")
                    return True
    except OSError:
        pass
    return False
