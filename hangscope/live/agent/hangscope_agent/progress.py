"""How far this process has come, and for how long it has made no progress; `hangscope run` reads it from an anonymous file."""

import json
import os
import signal
import sys
import threading
import time
from typing import Any, Optional, Tuple

from .descriptor import Descriptor
from .identity import Identity
from .output import Output
from .proc import STATUS_NAME
from .recorders import calls_are_recorded, calls_were_made, frontier, initialized, recorders

STATUS_SIZE = 4096  # bytes
STORE = ("MASTER_ADDR", "MASTER_PORT")
#: Parts of files that are on the stack during that work alone: what was compiled runs below `torch/_dynamo/eval_frame.py`.
WORK = (
    ("torch/_dynamo/convert_frame.py", "compile"),
    ("torch/_inductor/async_compile.py", "compile"),
    ("torch/_inductor/graph.py", "compile"),
    ("torch/_inductor/scheduler.py", "compile"),
    ("/triton/compiler/", "compile"),
    ("torch/serialization.py", "save"),
    ("torch/distributed/checkpoint/", "save"),
    ("safetensors/", "save"),
    ("<frozen importlib._bootstrap", "import"),
)
_NAP = 0.0005  # s: long enough for the other thread to take the interpreter
WAITING = "torch/distributed/distributed_c10d.py"  # above such work it waits for a rank that does it
# Beginnings of files; libraries lie below the second one or in LIBRARIES.
NOT_THE_USERS = ("<", os.path.dirname(os.__file__))
LIBRARIES = ("/site-packages/", "/dist-packages/")


class Progress:
    """The progress of one process: by its calls if a recorder reports them, else by its stack and what it prints."""

    def __init__(self, identity: Identity, output: Output) -> None:
        self._identity, self._output = identity, output
        self._status: Optional[Descriptor] = None
        self._changes = self._moves = self._printed = self._heard = 0
        self._token: Any = None
        self._place: Any = None  # of the main thread
        self._since = time.monotonic()
        self.longest = 0.0  # s: the longest pause that ended

    def open(self) -> None:
        """Make the file. Raises OSError."""
        self._status = Descriptor(os.memfd_create(STATUS_NAME))

    def close(self) -> None:
        """Close the file."""
        if self._status is not None:
            self._status.close()
        self._status = None

    def look(self) -> bool:
        """Take note of how far the process has come and put it where the watcher finds it; return whether it went on."""
        known = initialized()
        place, work, at = where_is_main_thread()
        if place != self._place or python_runs():
            self._place = place
            self._moves += 1
        tokens = [frontier(dump) for _, dump in recorders()] if known else []
        has_calls = any(tokens)
        if known:
            by_calls = has_calls and calls_are_recorded()
        else:  # it will be in a process group if its launcher has set where to meet
            by_calls = "torch" in sys.modules and "MASTER_ADDR" in os.environ
        now, token = time.monotonic(), tokens if has_calls else [place, self._output.count]
        moved: bool = token != self._token
        if moved:
            self.longest = max(self.longest, 0.0 if self._token is None else now - self._since)
            self._token, self._since = token, now
        if moved and known and by_calls and (self._changes or calls_were_made()):
            self._changes += 1
        rank, world = known or (self._identity.rank, 0)
        if rank is not None:
            # as the program sees it now
            store = "" if known else " ".join(map(os.environ.get, STORE, ("", "")))
            where = {"work": work, "at": at[:200], "store": store[:200]}
            self._tell(rank=rank, world_size=world, by_calls=by_calls, **where)
        return moved

    @property
    def still(self) -> float:
        """Return for how many seconds there was no progress."""
        return time.monotonic() - self._since

    def _tell(self, **statements: Any) -> None:
        place = -1 if self._status is None else self._status.get()
        if place < 0:
            return
        total = self._output.count
        if statements["work"] != "import":  # what a library prints while it is loaded is no progress
            self._printed += total - self._heard
        self._heard = total
        saves = signal.getsignal(signal.SIGTERM) not in (signal.SIG_DFL, signal.SIG_IGN, None)
        counts = {"changes": self._changes, "moves": self._moves, "printed": self._printed, "saves": saves}
        os.pwrite(place, json.dumps({**counts, **statements}).encode().ljust(STATUS_SIZE), 0)


def where_is_main_thread() -> Tuple[int, str, str]:
    """Return a mark of the main thread's place, which known long work it is in, and the innermost line of the user's code."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place, work, waits, at, depth = 0, "", False, "", 0
    while frame is not None and depth < 200:
        code = frame.f_code
        file = code.co_filename
        place = hash((place, code, frame.f_lasti))
        waits = waits or file.endswith(WAITING)
        if not at and not file.startswith(NOT_THE_USERS) and not any(part in file for part in LIBRARIES):
            at = "%s:%s in %s" % (file, frame.f_lineno, code.co_name)
        for part, kind in WORK:
            if part in file:
                work = kind
        frame, depth = frame.f_back, depth + 1
    return place, "" if waits else work, at


def python_runs() -> bool:
    """Return whether another thread runs Python code: it gives the interpreter back after the switch interval only.

    A thread that waits or spins in C code has given it up before.
    """
    for _ in range(3):
        began = time.perf_counter()
        time.sleep(_NAP)
        if time.perf_counter() - began - _NAP < 0.8 * sys.getswitchinterval():
            return False
    return True
