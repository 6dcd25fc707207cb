"""Standard input as a file: `pbpaste | hangscope analyze -`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from hangscope.errors import Note, UsageError
from hangscope.ingest.files.scratch import scratch_folder

NAME = "-"  # the path that stands for it
SHOWN = "stdin"
LIMIT = 1 << 30  # bytes; what is longer is no paste, and is better named as a file
_BLOCK = 1 << 20


def copy_of_input(cleanup: ExitStack, notes: list[Note]) -> str:
    """Return a temporary file that holds what standard input gives, at most 1 GiB of it.

    A longer one is cut with a note. Raises UsageError where there is no standard input.
    """
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.closed:
        raise UsageError("there is no standard input to read", "give a file or a folder, or pipe text in")
    folder = cleanup.enter_context(scratch_folder())
    path = os.path.join(folder, SHOWN)
    left = LIMIT
    with open(path, "wb") as copy:
        while left > 0 and (data := stream.read(min(_BLOCK, left))):
            copy.write(data)
            left -= len(data)
    if not left and stream.read(1):
        notes.append(
            Note(
                "truncated",
                f"standard input is longer than {LIMIT >> 30} GiB and was read up to there",
                SHOWN,
                hint="give the file by its name",
            )
        )
    return path
