"""What all outputs share: words for roles, collectives and durations, rows that are alike grouped, and text made fit to be shown."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from datetime import datetime, timezone
from typing import TypeVar

from hangscope.model.conclusion import CallRef
from hangscope.model.rankset import compress, in_words
from hangscope.model.regex import regex
from hangscope.verdict.phrasing import sentence_case

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

#: What a rank is in an incident, in the order of the rank map's states.
ROLE_WORDS = {
    "waiting": "blocked",
    "culprit": "culprit",
    "idle": "no collective pending",
    "unseen": "no usable dump",
}
ROLES = tuple(ROLE_WORDS)
#: Of a rank without a usable dump of which something else was read.
HEARD = "no dump; log or stack only"
STATUS_WORDS = {"hang": "Hang", "no_hang": "No hang", "inconclusive": "Inconclusive"}
STATE_WORDS = {"done": "completed", "pending": "pending", "started": "started", "unknown": "end not recorded"}
#: What a collective is called of which no line names op or seq.
NOT_NAMED = "a collective that no line names"
#: No text is shown longer than this.
LINE_CHARS = 500

_REMARK = regex(r" ?\([^()]{0,200}\)")
_SHAPE = regex(r"\(\[[^()]{0,200}\)")
_CLAUSE_END = regex(r"; |\. ")
_ANSI = regex(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE: dict[int, str | None] = {
    **dict.fromkeys((*range(9), 11, 12, *range(13, 32), *range(127, 160))),
    **dict.fromkeys(range(55296, 57344), "�"),
    # Characters that reorder or hide their neighbours would let a log line rewrite a sentence of the report.
    **dict.fromkeys((1564, 8206, 8207, *range(8234, 8239), *range(8294, 8298), 65279), "�"),
    # Those without a width let two names look the same.
    **dict.fromkeys((173, 847, 6158, *range(8203, 8206), *range(8288, 8293), *range(917504, 917632)), "�"),
    **dict.fromkeys((8232, 8233), " "),
}


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of each key, in their order."""
    found: dict[K, list[V]] = defaultdict(list)
    for key, value in pairs:
        found[key].append(value)
    return dict(found)


def folded(pairs: Iterable[tuple[K, int]]) -> list[tuple[K, list[int]]]:
    """Return the ranks of each key, in the order of their first ranks."""
    return sorted(grouped(pairs).items(), key=lambda item: item[1])


def below_title(title: str, explanation: str) -> str:
    """Return an explanation as it is shown below a title: without a first clause that says no more than the title.

    Remarks in parentheses (a place, a host) do not count: who and where are shown next to the explanation. A shape does.
    """
    said = _REMARK.sub("", title).rstrip(".")
    for end in _CLAUSE_END.finditer(explanation):
        clause, rest = explanation[: end.start()], explanation[end.end() :]
        if _REMARK.sub("", clause) == said:
            kept = all(shape[1:-1] in title + rest for shape in _SHAPE.findall(clause))
            return sentence_case(rest) if kept else explanation
        if end.start() > 2 * len(title) + LINE_CHARS:
            break
    return "" if _REMARK.sub("", explanation).rstrip(".") == said else explanation


def clean(text: str) -> str:
    """Return text without control characters (except newlines and tabs), ANSI sequences and characters that reorder text."""
    return _ANSI.sub("", text).translate(_UNPRINTABLE)


def cut(line: str, length: int) -> str:
    """Return text on one line, no longer than `length`, cut between words if one is near, with a mark."""
    line = " ".join(line.split())
    if len(line) <= length:
        return line
    kept = line[: length - 1]
    word_end = kept.rfind(" ")
    return (kept[:word_end] if word_end > length * 3 // 4 else kept).rstrip(" ,;") + "…"


def cut_path(path: str, length: int) -> str:
    """Return a path no longer than `length`, cut at its beginning, because its end matters."""
    return path if len(path) <= length else "…" + path[1 - length :]


def at_line(file: str, line: int) -> str:
    """Return `train.py:87`, or only the file where the line is not known."""
    return f"{file}:{line}" if line else file


def first_of(texts: Sequence[str], most: int, more: str) -> list[str]:
    """Return the first of some texts, and with `more`, such as `and {:,} more`, how many there are besides."""
    left_out = len(texts) - most
    return [*texts[:most], more.format(left_out)] if left_out > 0 else [*texts]


def listed(names: Sequence[str], most: int) -> str:
    """Return `a, b and 3 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def rank_words(ranks: str) -> str:
    """Return `rank 3` or `ranks 0-2, 5 and 7` for ranks that are compressed text already."""
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {in_words(ranks)}"


def some_ranks(ranks: Sequence[int], length: int = 60) -> str:
    """Return ranks as text that fits, or how many there are and the first of them."""
    text = compress(ranks)
    if len(text) <= length:
        return text
    return f"{text[: length - 20].rsplit(',', 1)[0]} … {len(ranks):,} in all"


def call_words(call: CallRef) -> str:
    """Return `all_reduce seq 812`."""
    op = call.op or "a collective"
    return f"{op} seq {call.seq}" if call.seq is not None else op


def sizes_words(sizes: Iterable[Sequence[int]], dtypes: Sequence[str] = (), most: int = 2) -> str:
    """Return `[64, 32] Float`; of more tensors than `most` their number."""
    listed = list(sizes)
    text = ", ".join(str(list(size)) for size in listed[:most])
    if len(listed) > most:
        text += f" and {len(listed) - most} more"
    return " ".join(part for part in (text, dtypes[0] if dtypes else "") if part)


def duration(seconds: float) -> str:
    """Return a length of time as people write it: `3.2 ms`, `10 min 2 s`, `7 h 5 min`."""
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 59.95:
        return f"{seconds:.3g} s"
    unit, lesser, size = ("min", "s", 60) if seconds < 3599.5 else ("h", "min", 3600)
    whole, rest = divmod(round(seconds / (size / 60)), 60)
    return f"{whole:,} {unit}" + (f" {rest} {lesser}" if rest else "")


def utc(ns: int, *, fine: bool = False, local: bool = False) -> str:
    """Return nanoseconds since the epoch as `2026-03-12 07:41:02 UTC`, `fine` with milliseconds; empty for what no calendar holds.

    `local`: they are of a clock whose time zone is not known, so that none is printed.
    """
    try:
        fraction = f".{ns // 10**6 % 1000:03}" if fine else ""
        return f"{datetime.fromtimestamp(ns // 10**9, timezone.utc):%Y-%m-%d %H:%M:%S}{fraction}{'' if local else ' UTC'}"
    except (OverflowError, OSError, ValueError):
        return ""
