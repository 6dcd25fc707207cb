"""Standard input as a file: `pbpaste | hangscope analyze -`."""

from __future__ import annotations

import os
import sys
from contextlib import ExitStack

from hangscope.errors import HangscopeError, Note, UsageError
from hangscope.ingest.files.scratch import scratch_folder

NAME = "-"  # the path that stands for it
SHOWN = "stdin"
LIMIT = 1 << 30  # bytes; what is longer is no paste, and is better named as a file
_BLOCK = 1 << 20


def copy_of_input(cleanup: ExitStack, notes: list[Note]) -> str:
    """Return a temporary file that holds what standard input gives, at most 1 GiB of it.

    A longer one, or one for which the disk has no room, is cut with a note. Raises UsageError where there is no standard input,
    HangscopeError where there is no room at all.
    """
    stream = getattr(sys.stdin, "buffer", None)
    if stream is None or sys.stdin.closed:
        raise UsageError("there is no standard input to read", "give a file or a folder, or pipe text in")
    try:
        folder = cleanup.enter_context(scratch_folder())
    except OSError as error:
        raise HangscopeError(
            f"there is no room for standard input: {error.strerror or error}", "set TMPDIR, or give a file"
        ) from None
    path = os.path.join(folder, SHOWN)
    left = LIMIT
    try:
        with open(path, "wb", buffering=0) as copy:
            while left > 0 and (data := stream.read(min(_BLOCK, left))):
                while data:
                    written = copy.write(data)
                    left, data = left - written, data[written:]
    except OSError as error:
        text = f"standard input was kept up to {LIMIT - left:,} bytes: {error.strerror or error}"
        notes.append(Note("truncated", text, SHOWN, hint="set TMPDIR, or give the file by its name"))
        return path
    if not left and stream.read(1):
        text = f"standard input is longer than {LIMIT >> 30} GiB and was read up to there"
        notes.append(Note("truncated", text, SHOWN, hint="give the file by its name"))
    return path
