"""Logs whose bytes are not plain text yet: UTF-16, and padding that is no content.

Log rotation by `copytruncate` leaves a file whose writer goes on at its old position: the log begins with as many NUL bytes as were
cut off, often as a hole that takes no disk space. Windows tools and PowerShell's `>` write UTF-16.
"""

from __future__ import annotations

import codecs
import errno
import io
import os
from collections.abc import Callable, Iterator
from typing import BinaryIO

LEAST_HOLE = 1 << 20  # bytes; a dump may hold shorter runs of zeros
_CHUNK = 1 << 18
_BLOCK = 512  # bytes of one block in `st_blocks`, whatever the file system's own size


def has_holes(info: os.stat_result) -> bool:
    """Return whether a file takes much less space on the disk than its size says."""
    return info.st_size - info.st_blocks * _BLOCK > LEAST_HOLE


def encoding_of(head: bytes) -> str | None:
    """Return `utf-16`, `utf-16-le` or `utf-16-be` where a file's first four bytes show it, else None."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    for name, text, zeros in (("utf-16-le", head[::2], head[1::2]), ("utf-16-be", head[1::2], head[::2])):
        if len(head) == 4 and zeros == b"\0\0" and text.isascii() and text.decode().isprintable():
            return name
    return None


class Remade(io.BufferedIOBase):
    """A stream of the bytes that `parts` makes of another one, which can be read again from its start and sought nowhere else.

    It gives what came before an error, and the error with each later read.
    """

    def __init__(self, raw: BinaryIO, parts: Callable[[BinaryIO], Iterator[bytes]]) -> None:
        self._raw, self._make = raw, parts
        self.seek(0)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go back to the start."""
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("this file is read from its start")
        self._raw.seek(0)
        self._parts, self._ready = self._make(self._raw), memoryview(b"")
        self._error: Exception | None = None
        self._position = 0
        return 0

    def tell(self) -> int:
        """Return how many bytes were read."""
        return self._position

    def close(self) -> None:
        """Close the stream that it is made of, too."""
        self._raw.close()
        super().close()

    def __iter__(self) -> Iterator[bytes]:
        begun: list[bytes] = []
        while block := self.read(_CHUNK):
            first, *others = block.split(b"\n")
            begun.append(first)
            for other in others:
                yield b"".join(begun) + b"\n"
                begun = [other]
        if last := b"".join(begun):
            yield last

    def _next(self) -> memoryview:
        """Return bytes that come next, none at the end."""
        while not self._ready:
            if self._error is not None:
                raise self._error
            try:
                part = next(self._parts, None)
            except Exception as error:
                self._error = error
                raise
            if part is None:
                break
            self._ready = memoryview(part)
        return self._ready

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes: fewer than `size` only where the end or an error comes; all of them only without an error."""
        wanted = 1 << 62 if size is None or size < 0 else size
        parts: list[memoryview] = []
        while wanted:
            try:
                part = self._next()[:wanted]
            except Exception:
                if parts and wanted < 1 << 60:
                    break  # it comes again
                raise
            if not part:
                break
            self._ready = self._ready[len(part) :]
            self._position += len(part)
            wanted -= len(part)
            parts.append(part)
        return b"".join(parts)


def unpadded(raw: BinaryIO) -> Iterator[bytes]:
    """Yield the bytes of a local file without its leading NULs, holes of `LEAST_HOLE` bytes or more and the NULs around these."""
    file = raw.fileno()
    for here, end, hole_follows in _stretches(file):
        padded = True
        while here < end and (data := os.pread(file, min(LEAST_HOLE, end - here), here)):
            here += len(data)
            data = data.lstrip(b"\0") if padded else data
            padded = padded and not data
            yield data.rstrip(b"\0") if here >= end and hole_follows else data


def _stretches(file: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (start, end, whether a hole follows) of what lies between the holes of a file."""
    start = until = 0
    size = os.fstat(file).st_size
    while until < size:
        data = _place(file, until, os.SEEK_DATA, size)
        if data - until >= LEAST_HOLE:
            if start < until:
                yield start, until, True
            start = data
        until = _place(file, data, os.SEEK_HOLE, size)
    if start < until:
        yield start, until, False


def _place(file: int, start: int, what: int, end: int) -> int:
    """Return where the next data or hole starts; where a file system cannot tell, all is data."""
    try:
        return os.lseek(file, start, what)
    except OSError as error:
        return end if error.errno == errno.ENXIO or what == os.SEEK_HOLE else start


def as_utf8(raw: BinaryIO, encoding: str) -> Iterator[bytes]:
    """Yield the text of a UTF-16 file as UTF-8; what cannot be decoded becomes U+FFFD."""
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    while chunk := raw.read(_CHUNK):
        yield decoder.decode(chunk).encode("utf-8", "replace")
    yield decoder.decode(b"", final=True).encode("utf-8", "replace")
