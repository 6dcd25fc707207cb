"""Where the main thread is, and which work that takes its time it is known to be in."""

import sys
import threading
from typing import Tuple

WORK = (("torch/_dynamo/", "compile"), ("torch/_inductor/", "compile"), ("/triton/", "compile"),
        ("torch/serialization.py", "save"), ("torch/distributed/checkpoint/", "save"), ("safetensors/", "save"),
        ("<frozen importlib._bootstrap", "import"))  # fmt: skip


def where_is_main_thread() -> Tuple[int, str]:
    """Return a mark of the main thread's place, and which known long work it is in."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    place, work, depth = 0, "", 0
    while frame is not None and depth < 200:
        place = hash((place, frame.f_code, frame.f_lineno))
        for part, kind in WORK:
            if part in frame.f_code.co_filename:
                work = kind
        frame, depth = frame.f_back, depth + 1
    return place, work
