"""Open a file as its plain bytes: gzip and zstd are recognised by their magic numbers."""

from __future__ import annotations

import gzip
import io
from typing import BinaryIO, cast

_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


class CompressionUnavailable(Exception):
    """The file is compressed in a way for which a package is missing."""


def open_plain(path: str) -> BinaryIO:
    """Return a buffered binary stream of the file's plain content, at its start."""
    raw = open(path, "rb", buffering=1 << 18)  # noqa: SIM115 - the caller closes it
    magic = raw.peek(4)[:4] if hasattr(raw, "peek") else b""
    if magic.startswith(_GZIP):
        return cast(BinaryIO, io.BufferedReader(gzip.GzipFile(fileobj=raw), 1 << 18))
    if magic == _ZSTD:
        try:
            import zstandard
        except ImportError:
            raw.close()
            raise CompressionUnavailable("it is zstd-compressed; pip install 'hangscope[zstd]' to read it") from None
        return cast(BinaryIO, io.BufferedReader(zstandard.ZstdDecompressor().stream_reader(raw), 1 << 18))
    return raw
