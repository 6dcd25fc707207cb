"""The child process that parses one file after another, and how it is talked to.

Messages (`isolated.py`) are a JSON list on stdin, a pickle of builtins on stdout. The child's
memory is limited, so that a file which asks for gigabytes ends in MemoryError here and costs nothing elsewhere.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys

from hangscope import isolated
from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.answer import Wire


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may reach the pipe
    gc.disable()  # whatever is allocated here is let go with the file; reference counts suffice
    known = reader.Known()
    while (request := isolated.receive(requests)) is not None:
        path, shown, max_bytes, memory = json.loads(request)
        isolated.limit_memory(memory)
        isolated.send(answers, pickle.dumps(reader.read_file(path, shown, max_bytes, known), protocol=5))


def load_answer(payload: bytes) -> Wire:
    """Return an answer on the parent's side; like a dump, it may hold no global."""
    answer: Wire = safe_pickle.load(payload)
    return answer
