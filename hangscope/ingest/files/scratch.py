"""Temporary folders that do not stay behind, however their process ends.

A folder is locked for as long as its process lives. What a killed process left is not locked any more, and is removed by the next one
that makes a folder in the same place.

Standard input is copied to one of them: `pbpaste | hangscope analyze -`.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

from hangscope.errors import HangscopeError, Note, UsageError

PREFIX = "hangscope-scratch-"
_SETTLED = 60.0  # seconds after which a folder that was just made is locked
_SWEPT = 20  # folders at a time: a hook has no time to clear a full disk


@contextmanager
def scratch_folder() -> Iterator[str]:
    """Give a temporary folder that is removed with all that is in it at the end of the context."""
    place = tempfile.gettempdir()
    _sweep(place)
    folder = tempfile.mkdtemp(prefix=PREFIX, dir=place)
    lock = _locked(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _locked(folder: str) -> int | None:
    """Return the open, locked folder; None where it is in use, or where there are no locks."""
    try:
        import fcntl

        opened = os.open(folder, os.O_RDONLY | os.O_NOFOLLOW | os.O_DIRECTORY)
    except (ImportError, OSError, AttributeError):
        return None
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(opened)
        return None
    return opened


def _sweep(place: str) -> None:
    """Remove the folders of this user that processes left which are gone."""
    with suppress(OSError):
        left = sorted(name for name in os.listdir(place) if name.startswith(PREFIX))[:_SWEPT]
        for folder in (os.path.join(place, name) for name in left):
            with suppress(OSError):
                info = os.lstat(folder)
                mine = stat.S_ISDIR(info.st_mode) and info.st_uid == os.geteuid()
                if not mine or time.time() - info.st_mtime < _SETTLED:
                    continue
                if (lock := _locked(folder)) is not None:
                    try:
                        shutil.rmtree(folder, ignore_errors=True)
                    finally:
                        os.close(lock)


STANDARD_INPUT = "-"  # the path that means it
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
        text = f"there is no room for standard input: {error.strerror or error}"
        raise HangscopeError(text, "set TMPDIR, or give a file") from None
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
