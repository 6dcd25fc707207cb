"""What precedes every line of a text that was quoted or indented as a whole: taken off before the file is recognised.

    > Process 700: python train.py          a mail's or Markdown's quotation, of a quotation too (`> > `)
        NCCL version 2.26.2 compiled ...    the blanks of a block of code, alone or below words that have none
    | Thread 700 (idle): "MainThread"       a bar, a comment's mark, a point of a list

A stack's own frames are indented too: blanks are a margin where all lines have them, and in a block after an empty line only
where nothing is recognised with them. A table's rows end in a bar as well.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from io import BytesIO
from typing import BinaryIO

from hangscope.ingest.files import sniff
from hangscope.ingest.lines.broken_lines import LIMIT
from hangscope.model.regex import regex

_LAYERS = 4  # of quotations and blocks in each other
_LEAST = 2  # lines that have a margin
_QUOTED = (
    0.6  # of the lines of a mail or post at least, where the rest are its head, words around and a signature
)
_CODE = b"    "
_QUOTE = regex(rb"[ \t]{0,8}>")
_MARK = regex(rb"[ \t]{0,80}(?:[|#%*]|\xe2\x94[\x82\x83])(?=[ \t\r]|$)")
_MAY_BE = regex(rb"^(?:[ \t]|[|#%*>]|\xe2\x94)", re.MULTILINE)


def without_margin(stream: BinaryIO, head: bytes) -> BinaryIO:
    """Return a stream at its start, without the margin that a short text has on all lines; line numbers stay."""
    if not _MAY_BE.search(head) or sniff.sniff(head) not in ("log", "stacks", "ras_text"):
        return stream
    data = stream.read(LIMIT + 1)
    stream.seek(0)
    lines = data.split(b"\n")
    if len(data) > LIMIT:
        return stream
    for _ in range(_LAYERS):
        inner = _unquoted(lines) or _unmarked(lines) or _undented(lines)
        if inner is None:
            break
        lines = inner
    if _kind(lines) == "log" and _kind(blocks := list(_without_blocks(lines))) != "log":
        lines = blocks
    return BytesIO(b"\n".join(lines))


def _kind(lines: list[bytes]) -> str:
    return sniff.sniff(b"\n".join(lines)[: sniff.HEAD_BYTES])


def _cut(lines: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Return the lines from where each one's margin ends, without the one blank after it that all have."""
    rests = [(line[end:], end > 0) for line, end in lines]
    blank = all(rest[:1] in (b" ", b">") or not rest.strip() for rest, marked in rests if marked)
    return [rest[1:] if blank and marked and rest[:1] == b" " else rest for rest, marked in rests]


def _unquoted(lines: list[bytes]) -> list[bytes] | None:
    ends = [mark.end() if (mark := _QUOTE.match(line)) else 0 for line in lines]
    quoted, written = sum(end > 0 for end in ends), sum(1 for line in lines if line.strip())
    return None if quoted < max(_LEAST, _QUOTED * written) else _cut(zip(lines, ends, strict=True))


def _unmarked(lines: list[bytes]) -> list[bytes] | None:
    written = [line.rstrip() for line in lines if line.strip()]
    ((mark, marked),) = Counter(_mark(line) for line in written).most_common(1) or [(b"", 0)]
    if not mark or marked < max(_LEAST, _QUOTED * len(written)):
        return None
    ends = [len(mark) if line.strip() and _mark(line) == mark else 0 for line in lines]
    rows = sum(line.endswith(mark.strip()) for line in written if len(line) > len(mark))
    return None if rows > 1 else _cut(zip(lines, ends, strict=True))


def _mark(line: bytes) -> bytes:
    found = _MARK.match(line)
    return found[0] if found is not None else b""


def _undented(lines: list[bytes]) -> list[bytes] | None:
    written = [line for line in lines if line.strip()]
    margin = written[0][: len(written[0]) - len(written[0].lstrip())] if len(written) >= _LEAST else b""
    for line in written:
        while not line.startswith(margin):
            margin = margin[:-1]
    return [line[len(margin) :] if line.strip() else b"" for line in lines] if margin else None


def _without_blocks(lines: list[bytes]) -> Iterator[bytes]:
    """Yield the lines, those of Markdown's blocks of code without its four blanks: a block follows an empty line."""
    inside, before = False, b""
    for line in lines:
        inside = (line.startswith(_CODE) and (inside or not before.strip())) or (inside and not line.strip())
        yield line[len(_CODE) :] if inside else line
        before = line
