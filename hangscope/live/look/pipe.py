"""NCCL's dump pipe: a write to `<TORCH_NCCL_DEBUG_INFO_PIPE_FILE><rank>.pipe` makes the rank dump, and it goes on.

torch 2.4 to 2.14 and `nccl-legacy` (ProcessGroupNCCL.cpp, class DumpPipe). The dump goes to where the watchdog's goes.
Both paths are the rank's own words: only a pipe is written to, and only a file of this user is copied, up to a size.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path
from typing import BinaryIO

from hangscope.export.output import replace_file
from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.look.processes import Process

_PREFIXES = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_PATIENCE = 3.0  # seconds: the monitor thread looks at the pipe once a second at most
_MOST = 256 << 20  # bytes of a dump


def ask_pipe(process: Process, target: Path) -> bool:
    """Ask one rank for a dump through its pipe, put it into `target`, and return whether it came."""
    try:
        environment, _ = proc.process_of(process.pid)
        prefix = next(filter(None, map(environment.get, _PREFIXES)), "")
        pipe = environment.get("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", "")
        if not pipe or not prefix:
            return False
        dump = Path(f"{prefix}{process.rank}")
        before = dump.lstat().st_mtime_ns if os.path.lexists(dump) else 0
        _write(f"{pipe}{process.rank}.pipe")
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            time.sleep(0.1)
            if os.path.lexists(dump) and dump.lstat().st_mtime_ns > before:
                size = dump.lstat().st_size
                time.sleep(0.2)
                if dump.lstat().st_size == size:
                    with _opened(dump) as file:
                        replace_file(target / f"nccl_trace_rank_{process.rank}", lambda out: _copy(file, out))
                    return True
    except OSError:
        pass
    return False


def _write(pipe: str) -> None:
    """Write to a pipe that somebody reads; raise OSError where there is none."""
    if not stat.S_ISFIFO(os.lstat(pipe).st_mode):
        raise OSError("no pipe")
    number = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY)
    try:
        os.write(number, b"1")
    finally:
        os.close(number)


def _opened(dump: Path) -> BinaryIO:
    """Open a dump; raise OSError where it is no file of this user, or too large."""
    file = os.fdopen(os.open(dump, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY), "rb")
    info = os.fstat(file.fileno())
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid() and info.st_size <= _MOST:
        return file
    file.close()
    raise OSError("no dump")


def _copy(source: BinaryIO, out: BinaryIO) -> None:
    left = _MOST  # it may grow
    while left > 0 and (data := source.read(min(1 << 20, left))):
        left -= out.write(data)
