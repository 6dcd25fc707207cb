"""Logs whose bytes are not plain text yet: UTF-16, and padding that is no content.

Log rotation by `copytruncate` leaves a file whose writer goes on at its old position: the log begins with as many NUL bytes as were
cut off, often as a hole that takes no disk space. Windows tools and PowerShell's `>` write UTF-16.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
from typing import Any, BinaryIO

LEAST_HOLE = 1 << 20  # bytes; a dump may hold shorter runs of zeros
_BLOCK = 512  # bytes of one block in `st_blocks`, whatever the file system's own size


def has_holes(info: os.stat_result) -> bool:
    """Return whether a file takes much less space on the disk than its size says."""
    return info.st_size - info.st_blocks * _BLOCK > LEAST_HOLE


def encoding_of(head: bytes) -> str | None:
    """Return `utf-16`, `utf-16-le` or `utf-16-be` where a file's first four bytes show it, else None."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if len(head) == 4 and head[1::2] == b"\0\0" and head[::2].isascii() and head[::2].decode().isprintable():
        return "utf-16-le"
    if len(head) == 4 and head[::2] == b"\0\0" and head[1::2].isascii() and head[1::2].decode().isprintable():
        return "utf-16-be"
    return None


class FromTheStart(io.RawIOBase):
    """A stream made of another one, which can be read again from its start and sought nowhere else."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._restart()

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True: it can go back to its start."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the start."""
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("this file is read from its start")
        self._raw.seek(0)
        self._restart()
        return 0

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._position

    def close(self) -> None:
        """Close the stream that it is made of, too."""
        self._raw.close()
        super().close()

    def _restart(self) -> None:
        self._position = 0


class Unpadded(FromTheStart):
    """The bytes of an unbuffered local file without its leading NULs and without holes of `LEAST_HOLE` bytes or more."""

    def _restart(self) -> None:
        super()._restart()
        self._here = self._until = 0
        self._padded = True  # what comes next may be preceded by NULs

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes that are content; return their number."""
        while True:
            if self._here >= self._until and not self._next_stretch():
                return 0
            most = max(len(buffer), LEAST_HOLE) if self._padded else len(buffer)
            data = os.pread(self._raw.fileno(), min(most, self._until - self._here), self._here)
            if not data:
                return 0
            if self._padded:
                content = data.lstrip(b"\0")
                self._here += len(data) - len(content)
                data, self._padded = content[: len(buffer)], not content
            self._here += len(data)
            if self._here >= self._until and self._hole_follows:
                data = data.rstrip(b"\0")
            if data:
                buffer[: len(data)] = data
                self._position += len(data)
                return len(data)

    def _next_stretch(self) -> bool:
        """Find the next bytes up to a hole of `LEAST_HOLE` bytes; False at the end of the file."""
        file, end = self._raw.fileno(), os.fstat(self._raw.fileno()).st_size
        self._until = self._here
        self._hole_follows = False
        while self._until < end:
            data = _place(file, self._until, os.SEEK_DATA, end)
            if data - self._until >= LEAST_HOLE:
                if self._here < self._until:
                    self._hole_follows = True
                    break
                self._here, self._padded = data, True
            self._until = _place(file, data, os.SEEK_HOLE, end)
        return self._here < self._until


def _place(file: int, start: int, what: int, end: int) -> int:
    """Return where the next data or hole starts; where a file system cannot tell, all is data."""
    try:
        return os.lseek(file, start, what)
    except OSError as error:
        return end if error.errno == errno.ENXIO or what == os.SEEK_HOLE else start


class AsUtf8(FromTheStart):
    """The text of a UTF-16 file as UTF-8; what cannot be decoded becomes U+FFFD."""

    def __init__(self, raw: BinaryIO, encoding: str) -> None:
        self._encoding = encoding
        super().__init__(raw)

    def _restart(self) -> None:
        super()._restart()
        self._decoder = codecs.getincrementaldecoder(self._encoding)("replace")
        self._ready = b""
        self._ended = False

    def readinto(self, buffer: Any) -> int:
        """Read the next bytes of UTF-8; return their number."""
        while not self._ready and not self._ended:
            chunk = self._raw.read(len(buffer))
            self._ended = not chunk
            self._ready = self._decoder.decode(chunk, final=self._ended).encode("utf-8", "replace")
        data, self._ready = self._ready[: len(buffer)], self._ready[len(buffer) :]
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)
