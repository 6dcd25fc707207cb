"""The files that hangscope writes: completely or not at all, never over another program's file, never in place of a device.

Only a regular file or a new name is replaced. What is written to by a name but is no file (a pipe, a terminal,
`/dev/null`, `/dev/stdout`) is written into, as a shell would; what cannot be is refused with one sentence.
"""

from __future__ import annotations

import errno
import os
import select
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hangscope.errors import UsageError
from hangscope.model.regex import regex

STALLED = 30.0  # seconds without anybody reading from a pipe
# Renaming over these would replace the name for everybody; they stand for what this process was started with.
_DESCRIPTOR = regex(r"/(?:dev|proc/self)/fd/(\d{1,9})")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}


def write_report(path: Path, text: str, *, force: bool = False) -> None:
    """Write a report of hangscope to `path`.

    Raises UsageError where `path` is a folder, a link to nothing, a block device, a socket, a pipe without a reader, or, without
    `force`, a file that is not a report of hangscope; OSError where it cannot be written.
    """
    data = text.encode("utf-8")
    write_file(path, lambda out: out.write(data), _is_report, "report of hangscope", force=force)


def write_file(
    path: Path,
    write: Callable[[BinaryIO], object],
    is_ours: Callable[[Path], bool],
    kind: str,
    *,
    force: bool = False,
) -> int:
    """Let `write` write to `path`, and return the number of bytes.

    `is_ours` returns whether an existing file is one of `kind` (in words), which is replaced without `force`. Raises as
    `write_report` does.
    """
    check(path, is_ours, kind, force=force)
    if not is_special(path):
        return replace_file(Path(os.path.realpath(path)), write)
    with tempfile.TemporaryFile() as whole:
        write(whole)
        size = whole.tell()
        whole.seek(0)
        _pour(whole, path)
    return size


def check(path: Path, is_ours: Callable[[Path], bool], kind: str, *, force: bool = False) -> None:
    """Raise UsageError where `write_file` would; nothing is opened that could wait or notice it."""
    if _descriptor(path) is not None:
        return
    try:
        mode = os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        if path.is_symlink():
            raise UsageError(f"{path} is a link to nothing", "remove it, or choose another name") from None
        return
    if stat.S_ISDIR(mode):
        raise UsageError(f"{path} is a folder", "name a file in it")
    for is_such, what in ((stat.S_ISBLK, "a block device"), (stat.S_ISSOCK, "a socket")):
        if is_such(mode):
            raise UsageError(f"{path} is {what}, which is not written to", "name a file")
    if stat.S_ISREG(mode) and not force and not is_ours(path):
        raise UsageError(f"{path} exists and is no {kind}", "choose another name with -o, or pass --force")


def is_special(path: Path) -> bool:
    """Return whether a name refers to something that is written into and not replaced."""
    return _descriptor(path) is not None or (os.path.exists(path) and not os.path.isfile(path))


def _descriptor(path: Path) -> int | None:
    """Return the number of the open file that a name such as `/dev/stdout` refers to, or None."""
    name = os.path.abspath(path)
    match = _DESCRIPTOR.fullmatch(name)
    return int(match[1]) if match else _STANDARD.get(name)


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> int:
    """Write to a new file in the folder of `path`, give it that name once it is complete, and return its size.

    Raises OSError where that cannot be, or where `path` is there and is no regular file.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as out:
            write(out)
            size = out.tell()
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)
        if os.path.lexists(path) and not stat.S_ISREG(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "it became something else while it was written", str(path))
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return size


def _pour(source: BinaryIO, path: Path) -> None:
    """Write all of `source` into a pipe, a character device or an open file, whose name stays what it is."""
    number = _descriptor(path)
    handle = os.dup(number) if number is not None else _open(path)
    with os.fdopen(handle, "wb", buffering=0) as out:
        while rest := source.read(1 << 16):
            while rest:
                if not select.select([], [out], [], STALLED)[1]:
                    raise TimeoutError(errno.ETIMEDOUT, f"nobody has read from it for {STALLED:.0f} seconds")
                rest = rest[out.write(rest) or 0 :]


def _open(path: Path) -> int:
    try:
        # a pipe without a reader would be waited for
        return os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        hint = "start its reader first, or name a file"
        raise UsageError(f"{path} is a pipe that nobody reads", hint) from None


def head_of(path: Path, size: int) -> bytes:
    """Return the first bytes of a file, by which it is recognized; none of one that cannot be read."""
    try:
        with path.open("rb") as stream:
            return stream.read(size)
    except OSError:
        return b""


def _is_report(path: Path) -> bool:
    head = head_of(path, 4096)
    return b'content="hangscope' in head or b'"hangscope.report/' in head
