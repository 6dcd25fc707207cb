"""Whether two reports describe the same bug: the parts of the fingerprint side by side, and other differences. Ranks, hosts and seqs change from run to run and do not identify a bug; cause, collective, group and lines do."""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hangscope.errors import NoInputError
from hangscope.knowledge.callsite import user_frame
from hangscope.model.codec import ShapeError, from_plain
from hangscope.model.dataclass import dataclass
from hangscope.report.json import without_spans
from hangscope.report.masking.walk import change_texts
from hangscope.report.schema.document import SCHEMA, Document
from hangscope.report.words import clean, listed, some_ranks

_DECIDING = ("status", "cause", "call", "group", "the culprit's line", "the line of those that wait")
_CHANGING = ("ranks", "hosts", "seq", "line numbers", "waiting ranks", "world size")
_TITLES = {_DECIDING: "what the fingerprint is made of", _CHANGING: "what changes from run to run"}


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side: their properties by name. `same`: they describe the same bug."""

    same: bool
    why: str
    parts: tuple[dict[str, str], dict[str, str]]

    def text(self, first: str, second: str) -> str:
        """Return the comparison for a terminal; `first` and `second` are what the reports are called."""
        said = "same bug" if self.same else "not the same bug"
        lines = [f"{said}: {self.why}", f"  A: {first}", f"  B: {second}"]
        for names, title in _TITLES.items():
            rows = [(name, *(part[name] for part in self.parts)) for name in names]
            rows = [row for row in rows if any(row[1:])]
            lines += ["", f"{title}:"] if rows else []
            for name, one, other in rows:
                sides = [f"      A {one or 'not known'}", f"      B {other or 'not known'}"]
                lines += [f"    {name}: {one}"] if one == other else [f"  ! {name}:", *sides]
        return "\n".join(lines) + "\n"


def compare(first: Document, second: Document) -> Comparison:
    """Return the comparison of two reports.

    Without a verdict on one side nothing is the same bug, unless neither job hangs.
    """
    one, other, parts = first.found, second.found, (_properties(first), _properties(second))
    if not one.cause or not other.cause:
        same = one.cause == other.cause and first.status == second.status == "no_hang"
        return Comparison(same, "neither job hangs" if same else "one of them has no verdict", parts)
    if one.cause == other.cause == "unknown":
        return Comparison(False, "both causes are unknown, which says nothing of their being one", parts)
    if one.fingerprint and one.fingerprint == other.fingerprint:
        return Comparison(True, f"both have the fingerprint {one.fingerprint}", parts)
    differing = ", ".join(name for name in _DECIDING if parts[0][name] != parts[1][name])
    if not differing and not one.fingerprint:
        why = "no line of the job's code is known, so nothing shows that they are one bug"
        return Comparison(False, why, parts)
    return Comparison(False, f"they differ in {differing or 'their fingerprint'}", parts)


def _properties(document: Document) -> dict[str, str]:
    verdict, at = document.found, document.found.location
    group, waiting = verdict.group, verdict.waiting_call
    frame = user_frame(waiting.frames) if waiting is not None else None
    nobody = "nobody" if verdict.cause else ""
    values = (
        document.status,
        verdict.cause,
        verdict.op or "",
        group.desc or group.name if group is not None else "",
        f"{at.file.rsplit('/', 1)[-1]} in {at.function}" if at is not None else "",
        f"{frame.file.rsplit('/', 1)[-1]} in {frame.name}" if frame is not None else "",
        some_ranks(verdict.culprit_ranks) if verdict.culprit_ranks else nobody,
        listed(sorted({c.host for c in verdict.culprits if c.host}), 8),
        "" if verdict.seq is None else str(verdict.seq),
        f"{at.file}:{at.line}" if at is not None else "",
        some_ranks(verdict.waiting_ranks) if verdict.waiting_ranks else "",
        str(document.world_size),
    )
    return dict(zip((*_DECIDING, *_CHANGING), values, strict=True))


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
            machine = zlib.decompressobj(-15)
            unpacked = machine.decompress(base64.b64decode(value, validate=True), MAX_UNPACKED)
            if machine.unconsumed_tail:
                raise ValueError(f"more than {MAX_UNPACKED >> 20} MiB")
            value = without_spans(json.loads(unpacked))
        document = change_texts(from_plain(Document, value), clean)
    except (ValueError, RecursionError, zlib.error, binascii.Error) as error:
        what = str(error) if isinstance(error, ShapeError) else type(error).__name__
        raise NoInputError(f"{path} is no report that can be read: {what[:200]}", hint) from None
    if document.schema != SCHEMA:
        raise NoInputError(f"{path} has the schema {document.schema[:60]!r}, not {SCHEMA!r}", hint)
    return document
