"""A text that was pasted, put back as it was printed: without the margin, the quotes and the numbers of a page, its broken lines joined.

What precedes every line of a text that was quoted or indented as a whole is taken off before the file is recognised:

    > Process 700: python train.py          a mail's or Markdown's quotation, of a quotation too (`> > `)
        NCCL version 2.26.2 compiled ...    the blanks of a block of code
    | Thread 700 (idle): "MainThread"       a bar, a comment's mark, a point of a list

A stack's own frames are indented too: blanks are a margin where all lines have them. A table's rows end in a bar as well.

A paste of a terminal of 116 columns holds `NumelIn=112` and on the next line `4, NumelOut=1124`. A line that does not begin
like one is joined with the one before it only where the join completes a known form (knowledge/lines/broken.toml), or where the lines
before the breaks are as wide as the terminal and no other line is wider, so nothing is joined on suspicion. Line numbers stay those of
the paste: a joined line has the number of its first part, and empty lines replace the others.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Container, Iterable, Sequence
from functools import cache
from io import BytesIO
from itertools import pairwise
from typing import BinaryIO

from hangscope.ingest.files import sniff
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_LAYERS = 4  # of quotations and blocks in each other
_LEAST = 2  # lines that have a margin
#: of the lines of a mail or post at least, where the rest are its head, words around and a signature
_QUOTED = 0.6
_MAIL_QUOTE = regex(rb"[ \t]{0,8}>")
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
        inner = _unquoted(lines) or _unmarked(lines) or _without_margin(lines)
        if inner is None:
            break
        lines = inner
    return BytesIO(b"\n".join(lines))


def _cut(lines: Iterable[tuple[bytes, int]]) -> list[bytes]:
    """Return the lines from where each one's margin ends, without the one blank after it that all have."""
    rests = [(line[end:], end > 0) for line, end in lines]
    blank = all(rest[:1] in (b" ", b">") or not rest.strip() for rest, marked in rests if marked)
    return [rest[1:] if blank and marked and rest[:1] == b" " else rest for rest, marked in rests]


def _unquoted(lines: list[bytes]) -> list[bytes] | None:
    ends = [mark.end() if (mark := _MAIL_QUOTE.match(line)) else 0 for line in lines]
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


def _without_margin(lines: list[bytes]) -> list[bytes] | None:
    written = [line for line in lines if line.strip()]
    margin = written[0][: len(written[0]) - len(written[0].lstrip())] if len(written) >= _LEAST else b""
    for line in written:
        while not line.startswith(margin):
            margin = margin[:-1]
    return [line[len(margin) :] if line.strip() else b"" for line in lines] if margin else None


LIMIT = 1 << 18  # bytes; no paste is longer, and what is longer is read as it is
_WIDTH, _NARROW = 400, 20  # characters of a line that may be broken
_PARTS = 16  # of one line
_FULL = 0.75  # of the width that a broken line fills at least, where it is broken between words
_INDENT = "    "
_PADDING = " " * 8
_NUMBERED = 3  # lines with numbers, or with a writer's name, that are no accident
_NUMBERED_PART = 0.8  # of the lines have numbers where a page put them there
_TERMINAL = 60  # characters, of the narrowest terminal that is recognised by its edge
_EDGES, _MOST_FULL = 2, 0.8  # lines that reach the edge, and the part of them that goes on in the next line
_WRITERS = 0.9  # of the lines that begin with a writer's name, where a collector put it before each
_DIGITS = regex(r"\d")


@cache
def _forms() -> Sequence[tuple[str, re.Pattern[str]]]:
    return [(form["word"], regex(form["pattern"])) for form in entries("lines/broken.toml", "form")]


def repair(data: bytes) -> tuple[bytes, int]:
    """Return a text as it was printed, with as many line feeds as before, and how many breaks were taken out. Linear in its length."""
    lines = data.decode("utf-8", "surrogateescape").split("\n")
    lines = _undented(
        _unnumbered([words("quotation_mark").sub("", line.rstrip("\r"), count=1) for line in lines])
    )
    if sum(line.endswith(_PADDING) for line in lines) >= _NUMBERED:  # as a terminal's copy mode pads lines
        lines = [line.rstrip(" ") for line in lines]
    writers, joined = _writers(lines), 0
    # where a collector put the writer's name before each line, no line is the rest of another: pdsh's `host: `
    if sum(writers.values()) < max(_NUMBERED, _WRITERS * sum(1 for line in lines if line.strip())):
        joined = _join_at_width(lines, writers) + _join_forms(lines, writers)
    return "\n".join(lines).encode("utf-8", "surrogateescape"), joined


def _join_at_width(lines: list[str], writers: Container[str]) -> int:
    """Join in place what a terminal broke at its right edge; return how many breaks that were.

    No line is wider than the edge but a paragraph of a person's, which is one line, and nearly all lines that reach it are followed by
    one that does not begin like a line.
    """
    around = zip(["", *lines], lines, [*lines[1:], ""], strict=False)
    width = max((len(line) for before, line, after in around if before.strip() or after.strip()), default=0)
    full = [n for n, line in enumerate(lines[:-1]) if width - 1 <= len(line.rstrip()) <= width]
    broken = [n for n in full if _goes_on(lines[n], lines[n + 1], writers)]
    different = len({lines[n] for n in broken})  # one line, printed twice, reaches no edge
    if not _TERMINAL <= width <= _WIDTH or different < _EDGES or len(broken) < _MOST_FULL * len(full):
        return 0
    for n in reversed(broken):  # so that the rest of a rest is joined first
        cut_number = (
            lines[n][-1:].isdigit() and lines[n + 1][:1].isdigit()
        )  # else a blank is lost at the edge
        lines[n], lines[n + 1] = lines[n].ljust(0 if cut_number else width) + lines[n + 1], ""
    return len(broken)


def _goes_on(line: str, after: str, writers: Container[str]) -> bool:
    """Return whether a line may be the rest of the one before it, and neither is of a table or of another bar of the same loop."""
    own = words("task_number").sub("", after, count=1)
    if (
        own.startswith("  ")
        or line.rstrip()[-1:] in ".:"
        or words("row_of_table").search(line)
        or words("row_of_table").match(after)
    ):
        return False
    alike = _DIGITS.sub("0", line).split(maxsplit=1)[:1] == _DIGITS.sub("0", after).split(maxsplit=1)[:1]
    return not alike and not _is_whole(own, after, writers)


def _is_whole(own: str, line: str, writers: Container[str]) -> bool:
    """Return whether a line is empty, or begins like one or with the name of a writer; `own` is its part after a task's number."""
    writer = words("name_of_writer").match(line)
    return (
        not own.strip()
        or words("begins_a_line").match(own) is not None
        or bool(writer and writer[0] in writers)
    )


def _writers(lines: list[str]) -> Counter[str]:
    """Return the names of writers that a collector put before lines, each with how often, as far as they repeat.

    What follows a full line only, each time, is the rest of a word that a terminal broke: `e` and `rror: wait timeout`.
    """
    width = max(map(len, lines)) - 1
    found, after_full = Counter[str](), Counter[str]()
    for before, line in pairwise(["", *lines]):
        if match := words("name_of_writer").match(line):
            found[match[0]] += 1
            after_full[match[0]] += len(before) >= width and not words("name_of_writer").match(before)
    return Counter({name: n for name, n in found.items() if n >= _NUMBERED and n > after_full[name]})


def _unnumbered(lines: list[str]) -> list[str]:
    """Return the lines without a page's line numbers, where nearly every line has the number after its predecessor's.

    A page counts from 1: what counts from 0 are srun's tasks, and a list of processes begins with their numbers.
    """
    if any(words("head_of_ps").match(line) for line in lines):
        return lines
    found = [(words("number_of_line").match(line), line) for line in lines]
    numbers = [int(match[1]) for match, line in found if match]
    numbered = 1 + sum(b == a + 1 for a, b in pairwise(numbers))
    written = sum(1 for line in lines if line.strip())
    if numbered < max(_NUMBERED, _NUMBERED_PART * written) or 0 in numbers:
        return lines
    return [line[match.end() :] if match else line for match, line in found]


def _undented(lines: list[str]) -> list[str]:
    """Return the lines without the four blanks that Markdown puts before quoted output: a block that begins like a line."""
    inside = False
    for n, line in enumerate(lines):
        begins = line[4:5].strip() and words("begins_a_line").match(line[4:])
        inside = line.startswith(_INDENT) and (inside or bool(begins))
        lines[n] = line[4:] if inside else line
    return lines


def _join_forms(lines: list[str], writers: Container[str]) -> int:
    """Join in place what completes a known form; return how many breaks that were."""
    at = joined = 0
    while at < len(lines) - 1:
        parts, full = _parts(lines, at, writers)
        count, text = _join(parts, full) if len(parts) > 1 else (1, "")
        if count > 1:
            lines[at : at + count] = [text, *[""] * (count - 1)]
            joined += count - 1
        at += count
    return joined


def _parts(lines: list[str], at: int, writers: Container[str]) -> tuple[list[str], int]:
    """Return a line and those after it that may be its rest, and how many of them fill the width of what is broken within a word.

    A terminal breaks where its width ends, whereas a mail is broken between words.
    """
    parts = [lines[at]]
    if not _NARROW <= len(lines[at].rstrip()) <= _WIDTH:
        return parts, 1
    full = 1
    for line in lines[at + 1 : at + _PARTS]:
        if len(line) > _WIDTH or _is_whole(words("task_number").sub("", line, count=1), line, writers):
            break
        fits = len(line) * _FULL <= len(parts[0]) and len(parts[-1]) >= len(parts[0]) * _FULL
        parts.append(line)
        full += fits and full == len(parts) - 1
    return parts, full


def _join(parts: list[str], full: int) -> tuple[int, str]:
    """Return how many parts make one line, and that line; (1, "") where no join completes a known form.

    The first `full` of them may be put together without a blank.
    """
    for glue, most in (("", full), (" ", len(parts))):
        parts = [part.rstrip() for part in parts] if glue else parts
        whole = glue.join(parts[:most])
        forms = [pattern for word, pattern in _forms() if word in whole]
        for count in range(2, most + 1) if forms else ():
            text = glue.join(parts[:count])
            if _completes(text, len(text) - len(parts[count - 1]), forms):
                width = max(map(len, parts[:count]))
                while count < most and len(parts[count - 1]) >= width - 1:
                    text += glue + parts[count]
                    count += 1
                return count, text.rstrip()
    return 1, ""


def _completes(text: str, last: int, forms: list[re.Pattern[str]]) -> bool:
    """Return whether one of the forms ends in the last part, which begins at `last`, and began before it."""
    return any((match := form.search(text)) and match.start() < last < match.end() for form in forms)
