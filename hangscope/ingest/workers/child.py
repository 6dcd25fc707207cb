"""The child process that parses one file after another, and how it is talked to.

Messages (`isolated.py`) are a JSON list on stdin, a pickle of builtins on stdout, of a pack one for each of its files and then one. The child's
memory is limited, so that a file which asks for gigabytes ends in MemoryError here and costs nothing elsewhere.
"""

from __future__ import annotations

import gc
import json
import pickle
import sys
from typing import IO, Any

from hangscope import isolated
from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.recorder.fast.templates import Templates
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.answer import Part, Wire


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may reach the pipe
    gc.disable()  # whatever is allocated here is let go with the file; reference counts suffice
    known = Templates()

    def send(message: Wire | Part) -> None:
        isolated.send(answers, pickle.dumps(message, protocol=5))

    while (request := isolated.receive(requests)) is not None:
        path, shown, max_bytes, memory, completions = json.loads(request)
        isolated.limit_memory(memory)
        send(reader.read_file(path, shown, max_bytes, known, send, completions))


def _share(wire: Wire, known: dict[bytes, bytes]) -> None:
    """Keep one object for equal columns, and equal kinds of call, of the answers of one pack."""

    def kept(data: Any) -> Any:
        return known.setdefault(data, data) if isinstance(data, bytes) else data

    for recording in wire["recordings"]:
        recording["calls"] = kept(recording["calls"])
        recording["columns"] = {name: kept(column) for name, column in recording["columns"].items()}


def receive_answer(answers: IO[bytes], limit: int) -> Wire | None:
    """Return an answer on the parent's side, None where the child ended before it; like a dump, it may hold no global.

    The files in a pack come before the answer, each in a message of its own. Raises TooLong where all are of more than
    `limit` bytes.
    """
    parts: list[Part] = []
    known: dict[bytes, bytes] = {}
    while (payload := isolated.receive(answers, limit)) is not None:
        limit -= len(payload)
        message = safe_pickle.load(payload)
        if isinstance(message, dict):
            return {**message, "files": parts} if "files" in message else message
        _share(message[2], known)
        parts.append(message)
    return None
