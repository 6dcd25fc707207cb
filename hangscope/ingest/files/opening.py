"""Open a file as its plain bytes: gzip and zstd are recognised by their magic numbers."""

from __future__ import annotations

import gzip
import io
import os
from typing import Any, BinaryIO, cast

from hangscope.ingest.files.remote import is_remote, open_remote

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_UNPACKS_TO = 8  # times its size, for a compressed log or dump


class CompressionUnavailable(Exception):
    """The file is compressed in a way for which a package is missing."""


def open_plain(path: str) -> BinaryIO:
    """Return a binary stream of the plain content of a file or URL, at its start."""
    raw: BinaryIO
    if is_remote(path):
        raw = open_remote(path)
    else:
        raw = open(path, "rb", buffering=1 << 18)  # noqa: SIM115 - the caller closes it
    magic = raw.read(4)
    raw.seek(0)
    if magic.startswith(_GZIP):
        return cast(BinaryIO, io.BufferedReader(_Gzip(raw), 1 << 18))
    if magic == _ZSTD:
        try:
            import zstandard
        except ImportError:
            raw.close()
            raise CompressionUnavailable(
                "it is zstd-compressed; pip install 'hangscope[zstd]' to read it"
            ) from None
        return cast(BinaryIO, io.BufferedReader(_Zstd(raw, zstandard.ZstdDecompressor()), 1 << 18))
    return raw


def plain_size(path: str) -> int:
    """Return how many bytes of plain content a local file holds: its size, estimated where it is compressed."""
    try:
        size = os.path.getsize(path)
        with open(path, "rb") as raw:
            magic = raw.read(4)
    except OSError:
        return 0  # whoever reads it will say why it cannot be opened
    return size * _UNPACKS_TO if magic.startswith(_GZIP) or magic == _ZSTD else size


def read_whole(stream: BinaryIO, limit: int) -> bytes:
    """Return the rest of a stream, or a little more than `limit` bytes of a longer one (a small file can unpack to any size)."""
    parts: list[bytes] = []
    while limit >= 0 and (part := stream.read(1 << 24)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


class _Gzip(gzip.GzipFile):
    """The plain bytes of a gzip file. Unlike its base class it closes the file that it was given."""

    def __init__(self, raw: BinaryIO) -> None:
        super().__init__(fileobj=raw)
        self._raw = raw

    def close(self) -> None:
        super().close()
        self._raw.close()


class _Zstd(io.RawIOBase):
    """The plain bytes of a zstd file. Unlike zstandard's own reader it can go back to the start."""

    def __init__(self, raw: BinaryIO, decompressor: Any) -> None:
        self._raw, self._decompressor = raw, decompressor
        self.seek(0)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if (offset, whence) != (0, io.SEEK_SET):
            raise io.UnsupportedOperation("a zstd file is read from its start")
        self._raw.seek(0)
        self._reader = self._decompressor.stream_reader(self._raw, read_across_frames=True, closefd=False)
        self._position = 0
        return 0

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._reader.read(len(buffer))
        except Exception as error:  # zstandard raises its own
            raise OSError(f"not whole as zstd: {error}") from None
        buffer[: len(data)] = data
        self._position += len(data)
        return len(data)

    def close(self) -> None:
        self._raw.close()
        super().close()
