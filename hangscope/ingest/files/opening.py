"""Open a file as its plain bytes: gzip, zstd, UTF-16, padding and holes are recognized by its first bytes and its size on disk."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import BinaryIO, cast

from hangscope.ingest.files import text_forms

_UNPACKS_TO = 8  # times its size, for a compressed log or dump
_CHUNK = 1 << 18
_EMPTY_MEMBERS = 10_000  # of a gzip file, in a row
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
            return unpacked(raw)
    if magic.startswith(b"\0") or text_forms.has_holes(os.stat(path)):
        raw = _remade(text_forms.unpadded, raw)
        magic = raw.read(4)
        raw.seek(0)
    if encoding := text_forms.encoding_of(magic):
        return _remade(partial(text_forms.as_utf8, encoding=encoding), raw)
    return raw


def _remade(parts: Callable[[BinaryIO], Iterator[bytes]], raw: BinaryIO) -> BinaryIO:
    return cast(BinaryIO, text_forms.Remade(raw, parts))


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


def _gunzipped(raw: BinaryIO) -> Iterator[bytes]:
    """Yield the plain bytes of a gzip file of one or many members.

    Unlike the gzip module it reads headers in zlib, and gives up where many members in a row are empty: either can cost
    minutes there.
    """
    empty, rest = 0, _next_member(raw, b"")
    while rest:
        member, content = zlib.decompressobj(31), False
        while not member.eof:
            rest = rest or raw.read(_CHUNK)
            if not rest:
                raise EOFError("the compressed file ends before its end")
            try:
                data = member.decompress(rest, _CHUNK)
            except zlib.error as error:
                raise OSError(f"not whole as gzip: {error}") from None
            rest, content = member.unconsumed_tail, content or bool(data)
            yield data
        empty = 0 if content else empty + 1
        if empty > _EMPTY_MEMBERS:
            raise OSError("it consists of empty members")
        rest = _next_member(raw, member.unused_data)


def _next_member(raw: BinaryIO, rest: bytes) -> bytes:
    """Return what follows the padding between members, as of tapes; nothing at the end."""
    while not (rest := rest.lstrip(b"\0")) and (more := raw.read(_CHUNK)):
        rest = more
    return rest


def _unzstd(raw: BinaryIO) -> Iterator[bytes]:
    try:
        import zstandard
    except ImportError:
        why = "it is zstd-compressed; pip install 'hangscope[zstd]' to read it"
        raise CompressionUnavailable(why) from None
    decompressor = zstandard.ZstdDecompressor()
    reader = decompressor.stream_reader(raw, read_across_frames=True, closefd=False)
    try:
        while data := reader.read(_CHUNK):
            yield data
    except Exception as error:  # zstandard raises its own
        raise OSError(f"not whole as zstd: {error}") from None


def _limited(parts: Callable[[BinaryIO], Iterator[bytes]], raw: BinaryIO) -> Iterator[bytes]:
    """Yield the plain bytes of a compressed file; no more of them than its size justifies."""
    size = 0
    with suppress(OSError, AttributeError):  # what lies in no file
        size = os.fstat(raw.fileno()).st_size
    limit = left = max(UNPACKED_FLOOR, UNPACKED_TIMES * size)
    for part in parts(raw):
        left -= len(part)
        if left < 0:
            raise OSError(f"it unpacks to more than {limit:,} bytes, which its size does not justify")
        yield part


#: what gives the plain bytes of a compressed file, by what the file begins with
UNPACKED: dict[bytes, Callable[[BinaryIO], BinaryIO]] = {
    b"\x1f\x8b": partial(_remade, partial(_limited, _gunzipped)),
    b"\x28\xb5\x2f\xfd": partial(_remade, partial(_limited, _unzstd)),
}
