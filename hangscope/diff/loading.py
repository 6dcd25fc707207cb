"""A report read from a file, with every type checked, or made from the files of a job."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hangscope.errors import NoInputError
from hangscope.model.codec import ShapeError, from_plain
from hangscope.report.masking.walk import change_texts
from hangscope.report.schema.document import SCHEMA, Document
from hangscope.report.spans import without_spans
from hangscope.report.words import clean

MAX_FILE = 64 << 20
MAX_UNPACKED = 256 << 20
_OPENS, _CLOSES = b'<script type="application/json" id="report-data">', b"</script>"


def load(path: str, *, progress: Callable[[int, int, int, int], None] | None = None) -> Document:
    """Return the report at `path`, or the report of analyzing the files there. Raises NoInputError where there is neither."""
    file = Path(path)
    if file.is_file() and file.stat().st_size <= MAX_FILE:
        data = file.read_bytes()
        if b'"hangscope.report/' in data[:4096]:
            return _read(path, data)
        _, opened, rest = data.partition(_OPENS)
        embedded, closed, _ = rest.partition(_CLOSES)
        if b'content="hangscope' in data[:4096] and opened and closed:
            return _read(path, embedded)
    from hangscope.api import analyze

    return analyze(path, store="", progress=progress).document


def _read(path: str, data: bytes) -> Document:
    hint = "write it anew with hangscope analyze --json"
    try:
        value: Any = json.loads(data)
        if isinstance(value, str):
            value = without_spans(json.loads(_unpacked(value)))
        document = change_texts(from_plain(Document, value), clean)
    except (ValueError, RecursionError, zlib.error, binascii.Error) as error:
        what = str(error) if isinstance(error, ShapeError) else type(error).__name__
        raise NoInputError(f"{path} is no report that can be read: {what[:200]}", hint) from None
    if document.schema != SCHEMA:
        raise NoInputError(f"{path} has the schema {document.schema[:60]!r}, not {SCHEMA!r}", hint)
    return document


def _unpacked(packed: str) -> bytes:
    machine = zlib.decompressobj(-15)
    data = machine.decompress(base64.b64decode(packed, validate=True), MAX_UNPACKED)
    if machine.unconsumed_tail:
        raise ValueError(f"more than {MAX_UNPACKED >> 20} MiB")
    return data
