"""The child process that parses one file after another, and how it is talked to.

Messages are an eight-byte length and what follows: a JSON list on stdin, a pickle of builtins on stdout. The child's
memory is limited, so that a file which asks for gigabytes ends in MemoryError here and costs nothing elsewhere.
"""

from __future__ import annotations

import gc
import json
import pickle
import struct
import sys
from typing import IO

from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.workers import reader
from hangscope.ingest.workers.answer import Wire

LENGTH = struct.Struct("<Q")


class TooLong(Exception):
    """A message is longer than what is taken. `length` is in bytes."""

    def __init__(self, length: int) -> None:
        super().__init__(length)
        self.length = length


def main() -> None:
    """Answer requests until stdin ends."""
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing but answers may reach the pipe
    gc.disable()  # whatever is allocated here is let go with the file; reference counts suffice
    known = reader.Known()
    while (request := receive(requests)) is not None:
        path, shown, max_bytes, memory = json.loads(request)
        _limit_memory(memory)
        send(answers, pickle.dumps(reader.read_file(path, shown, max_bytes, known), protocol=5))


def send(stream: IO[bytes], payload: bytes) -> None:
    """Write one message."""
    stream.write(LENGTH.pack(len(payload)))
    stream.write(payload)
    stream.flush()


def receive(stream: IO[bytes], limit: int = 1 << 62) -> bytes | None:
    """Return one message, or None where the stream ends. Raises TooLong for one of more than `limit` bytes."""
    header = stream.read(LENGTH.size)
    if len(header) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(header)
    if length > limit:
        raise TooLong(length)
    payload = stream.read(length)
    return payload if len(payload) == length else None


def _limit_memory(limit: int) -> None:
    try:
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        resource.setrlimit(
            resource.RLIMIT_AS, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard)
        )
        resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    except (ImportError, ValueError, OSError):
        pass  # no such limit on this platform: the parent's deadline still holds


def load_answer(payload: bytes) -> Wire:
    """Return an answer on the parent's side; like a dump, it may hold no global."""
    answer: Wire = safe_pickle.load(payload)
    return answer
