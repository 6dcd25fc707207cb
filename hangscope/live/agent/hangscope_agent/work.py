"""Where the main thread is, which work that takes its time it is known to be in, and whether it runs Python code."""

import os
import sys
import threading
import time
from typing import Tuple

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
