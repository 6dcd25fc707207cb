"""Open a file as its plain bytes: gzip, zstd, UTF-16, padding and holes are recognized by its first bytes and its size on disk."""

from __future__ import annotations

import io
import os
import zlib
from typing import Any, BinaryIO, cast

from hangscope.ingest.files import text_forms

_UNPACKS_TO = 8  # times its size, for a compressed log or dump
_CHUNK = 1 << 16
UNPACKED_FLOOR, UNPACKED_TIMES = 2**30, 250  # bytes of one compressed file, by its own size


class CompressionUnavailable(Exception):
    """The file is compressed in a way for which a package is missing."""


def open_plain(path: str) -> BinaryIO:
    """Return a binary stream of the plain content of a local file, at its start."""
    raw: BinaryIO = open(path, "rb", buffering=1 << 18)  # noqa: SIM115 - the caller closes it
    magic = raw.read(4)
    raw.seek(0)
    for begin, unpacked in UNPACKED.items():
        if magic.startswith(begin):
            return cast(BinaryIO, _Patient(unpacked(raw), 1 << 18))
    if magic.startswith(b"\0") or text_forms.has_holes(os.stat(path)):
        raw.close()
        raw = cast(BinaryIO, _Patient(text_forms.Unpadded(open(path, "rb")), 1 << 18))  # noqa: SIM115 - the caller closes it
        magic = raw.read(4)
        raw.seek(0)
    if encoding := text_forms.encoding_of(magic):
        return cast(BinaryIO, _Patient(text_forms.AsUtf8(raw, encoding), 1 << 18))
    return raw


def plain_size(path: str) -> int:
    """Return how many bytes of plain content a local file holds: its size, estimated where it is compressed."""
    try:
        info = os.stat(path)
        size = info.st_size
        if text_forms.has_holes(info):
            size = min(size, info.st_blocks * 512 * _UNPACKS_TO)
        with open(path, "rb") as raw:
            magic = raw.read(4)
    except OSError:
        return 0  # whoever reads it will say why it cannot be opened
    return size * _UNPACKS_TO if magic.startswith(tuple(UNPACKED)) else size


def read_whole(stream: BinaryIO, limit: int) -> bytes:
    """Return the rest of a stream, or a little more than `limit` bytes of a longer one (a small file can unpack to any size)."""
    parts: list[bytes] = []
    while limit >= 0 and (part := stream.read(1 << 24)):
        parts.append(part)
        limit -= len(part)
    return b"".join(parts)


class _Patient(io.BufferedReader):
    """A buffered stream that gives what came before an error, and the error with the next read."""

    def read(self, size: int | None = -1, /) -> bytes:
        wanted = 1 << 62 if size is None or size < 0 else size
        parts: list[bytes] = []
        while wanted:
            try:
                part = self.read1(min(wanted, 1 << 20))
            except Exception:
                if parts and wanted < 1 << 60:
                    break  # it comes again
                raise
            if not part:
                break
            parts.append(part)
            wanted -= len(part)
        return b"".join(parts)


class _Unpacked(text_forms.FromTheStart):
    """The plain bytes of a compressed file; no more of them than its size justifies."""

    def __init__(self, raw: BinaryIO) -> None:
        self._limit = max(UNPACKED_FLOOR, UNPACKED_TIMES * _size(raw))
        raw.seek(0)
        super().__init__(raw)

    def readinto(self, buffer: Any) -> int:
        data = self._more(len(buffer))
        self._position += len(data)
        if self._position > self._limit:
            raise OSError(f"it unpacks to more than {self._limit:,} bytes, which its size does not justify")
        buffer[: len(data)] = data
        return len(data)

    def _more(self, wanted: int) -> bytes:
        raise NotImplementedError


class GzipStream(_Unpacked):
    """The plain bytes of a gzip file of one or many members.

    Unlike the gzip module it reads headers in zlib, and gives up where many members in a row are empty: either can cost
    minutes there.
    """

    _EMPTY_MEMBERS = 10_000

    def _restart(self) -> None:
        super()._restart()
        self._member: Any = None
        self._rest, self._empty = b"", 0

    def _more(self, wanted: int) -> bytes:
        while True:
            if not self._rest:
                self._rest = self._raw.read(_CHUNK)
            if self._member is None:
                self._rest = self._rest.lstrip(b"\0")  # padding between members, as of tapes
                if not self._rest:
                    if not (more := self._raw.read(_CHUNK)):
                        return b""
                    self._rest = more
                    continue
                self._member, self._got = zlib.decompressobj(31), False
            if not self._rest:
                raise EOFError("the compressed file ends before its end")
            try:
                data: bytes = self._member.decompress(self._rest, wanted)
            except zlib.error as error:
                raise OSError(f"not whole as gzip: {error}") from None
            self._rest = self._member.unconsumed_tail
            self._got = self._got or bool(data)
            if self._member.eof:
                self._rest = self._member.unused_data
                self._empty = 0 if self._got else self._empty + 1
                self._member = None
                if self._empty > self._EMPTY_MEMBERS:
                    raise OSError("it consists of empty members")
            if data:
                return data


class _ZstdStream(_Unpacked):
    """The plain bytes of a zstd file."""

    def _restart(self) -> None:
        super()._restart()
        try:
            import zstandard
        except ImportError:
            self._raw.close()
            why = "it is zstd-compressed; pip install 'hangscope[zstd]' to read it"
            raise CompressionUnavailable(why) from None
        decompressor = zstandard.ZstdDecompressor()
        self._reader = decompressor.stream_reader(self._raw, read_across_frames=True, closefd=False)

    def _more(self, wanted: int) -> bytes:
        try:
            data: bytes = self._reader.read(wanted)
        except Exception as error:  # zstandard raises its own
            raise OSError(f"not whole as zstd: {error}") from None
        return data


#: what gives the plain bytes of a compressed file, by what the file begins with
UNPACKED: dict[bytes, type[_Unpacked]] = {b"\x1f\x8b": GzipStream, b"\x28\xb5\x2f\xfd": _ZstdStream}


def _size(raw: BinaryIO) -> int:
    """Return the size of an open file in bytes, and of what has none zero."""
    try:
        return os.fstat(raw.fileno()).st_size
    except (OSError, AttributeError, io.UnsupportedOperation):
        return 0
