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
from hangscope.report.schema.document import SCHEMA, Document, VerdictPart
from hangscope.report.words import clean, listed, some_ranks


@dataclass(frozen=True, slots=True)
class Part:
    """One property that is compared; `decides`: whether it is part of the fingerprint."""

    name: str
    first: str
    second: str
    decides: bool

    @property
    def equal(self) -> bool:
        """Return whether both say the same."""
        return self.first == self.second


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two reports side by side. `same`: they describe the same bug."""

    same: bool
    why: str
    parts: tuple[Part, ...]

    def text(self, first: str, second: str) -> str:
        """Return the comparison for a terminal; `first` and `second` are what the reports are called."""
        said = "same bug" if self.same else "not the same bug"
        lines = [f"{said}: {self.why}", f"  A: {first}", f"  B: {second}"]
        titles = {True: "what the fingerprint is made of", False: "what changes from run to run"}
        for decides, title in titles.items():
            chosen = [part for part in self.parts if part.decides is decides and (part.first or part.second)]
            lines += ["", f"{title}:"] if chosen else []
            for part in chosen:
                both = (("A", part.first), ("B", part.second))
                sides = [f"      {side} {value or 'not known'}" for side, value in both]
                lines += [f"    {part.name}: {part.first}"] if part.equal else [f"  ! {part.name}:", *sides]
        return "\n".join(lines) + "\n"


def compare(first: Document, second: Document) -> Comparison:
    """Return the comparison of two reports.

    Without a verdict on one side nothing is the same bug, unless neither job hangs.
    """
    one, other = first.verdict, second.verdict
    parts = (
        Part("status", first.status, second.status, True),
        *(Part(*row, True) for row in zip(_DECIDING, _fingerprint(one), _fingerprint(other), strict=True)),
        *(Part(*row, False) for row in zip(_CHANGING, _run(first), _run(second), strict=True)),
    )
    if one is None or other is None:
        same = one is None and other is None and first.status == second.status == "no_hang"
        return Comparison(same, "neither job hangs" if same else "one of them has no verdict", parts)
    if one.cause == other.cause == "unknown":
        return Comparison(False, "both causes are unknown, which says nothing of their being one", parts)
    if one.fingerprint and one.fingerprint == other.fingerprint:
        return Comparison(True, f"both have the fingerprint {one.fingerprint}", parts)
    differing = ", ".join(part.name for part in parts if part.decides and not part.equal)
    if not differing and not one.fingerprint:
        why = "no line of the job's code is known, so nothing shows that they are one bug"
        return Comparison(False, why, parts)
    return Comparison(False, f"they differ in {differing or 'their fingerprint'}", parts)


_DECIDING = ("cause", "call", "group", "the culprit's line", "the line of those that wait")
_CHANGING = ("ranks", "hosts", "seq", "line numbers", "waiting ranks", "world size")


def _fingerprint(verdict: VerdictPart | None) -> tuple[str, ...]:
    if verdict is None:
        return ("",) * len(_DECIDING)
    at = verdict.location
    frame = user_frame(verdict.waiting_call.frames) if verdict.waiting_call is not None else None
    return (
        verdict.cause,
        verdict.op or "",
        verdict.group.desc or verdict.group.name if verdict.group is not None else "",
        f"{at.file.rsplit('/', 1)[-1]} in {at.function}" if at is not None else "",
        f"{frame.file.rsplit('/', 1)[-1]} in {frame.name}" if frame is not None else "",
    )


def _run(document: Document) -> tuple[str, ...]:
    verdict = document.verdict
    if verdict is None:
        return ("", "", "", "", "", str(document.world_size))
    at = verdict.location
    hosts = sorted({c.host for c in verdict.culprits if c.host})
    return (
        some_ranks(verdict.culprit_ranks) if verdict.culprit_ranks else "nobody",
        listed(hosts, 8),
        "" if verdict.seq is None else str(verdict.seq),
        f"{at.file}:{at.line}" if at is not None else "",
        some_ranks(verdict.waiting_ranks) if verdict.waiting_ranks else "",
        str(document.world_size),
    )


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
