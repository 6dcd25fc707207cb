"""Where the main thread is, and which work that takes its time it is known to be in."""

import sys
import threading
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
WAITING = "torch/distributed/distributed_c10d.py"  # above such work it waits for a rank that does it


def where_is_main_thread() -> Tuple[int, str]:
    """Return a mark of the main thread's place, and which known long work it is in."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place, work, waits, depth = 0, "", False, 0
    while frame is not None and depth < 200:
        file = frame.f_code.co_filename
        place = hash((place, frame.f_code, frame.f_lasti))
        waits = waits or file.endswith(WAITING)
        for part, kind in WORK:
            if part in file:
                work = kind
        frame, depth = frame.f_back, depth + 1
    return place, "" if waits else work
