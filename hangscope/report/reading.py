"""Reading, without errors, a report dict whose values may be null, absent or of an unforeseen type."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

from hangscope.align.rankset import compress

#: No text is shown longer than this.
LINE_CHARS = 500

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNPRINTABLE: dict[int, str | None] = {
    **dict.fromkeys((*range(9), 11, 12, *range(13, 32), *range(127, 160))),
    **dict.fromkeys(range(55296, 57344), "�"),
    # Characters that reorder or hide their neighbours would let a log line rewrite a sentence of the report.
    **dict.fromkeys((1564, 8206, 8207, *range(8234, 8239), *range(8294, 8298), 65279), "�"),
    # Those without a width let two names look the same.
    **dict.fromkeys((173, 847, 6158, *range(8203, 8206), *range(8288, 8293), *range(917504, 917632)), "�"),
    **dict.fromkeys((8232, 8233), " "),
}


def clean(value: Any) -> Any:
    """Return plain data with control characters, ANSI sequences and text-reordering characters taken out.

    Newlines and tabs stay; floats that JSON cannot hold become None.
    """
    if isinstance(value, str):
        return _ANSI.sub("", value).translate(_UNPRINTABLE)
    if isinstance(value, Mapping):
        return {clean(str(key)): clean(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [clean(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def items(value: object) -> list[Any]:
    """Return the value if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def mappings(value: object) -> list[Mapping[str, Any]]:
    """Return those items of a list that are mappings."""
    return [item for item in items(value) if isinstance(item, Mapping)]


def is_number(value: object) -> TypeGuard[int]:
    """Return whether the value is an int that is no bool."""
    return isinstance(value, int) and not isinstance(value, bool)


def choice(value: object, allowed: Collection[str], default: str) -> str:
    """Return the value if it is one of the allowed words, else the default."""
    return value if isinstance(value, str) and value in allowed else default


def cut(line: str, length: int) -> str:
    """Return text on one line, no longer than `length`, cut between words if one is near, with a mark."""
    line = " ".join(line.split())
    if len(line) <= length:
        return line
    kept = line[: length - 1]
    word_end = kept.rfind(" ")
    return (kept[:word_end] if word_end > length * 3 // 4 else kept).rstrip(" ,;") + "…"


def text(value: object, length: int) -> str:
    """Return any JSON value as a person would write it: `enqueued 812, completed 811`; empty for null."""
    return cut(_plain(value), length)


def texts(value: object, length: int) -> list[str]:
    """Return the items of a list as text, those that say nothing left out."""
    return [line for line in (text(item, length) for item in items(value)) if line]


def rank_text(value: object) -> str:
    """Return a list of ranks, or ranks that come folded as text, as `0-2,5`; empty where there is none."""
    return text(value, 80) if value else ""


def rank_phrase(ranks: str) -> str:
    """Return `rank 3` or `ranks 0-2,5` for ranks that are text already."""
    return f"rank {ranks}" if ranks.isdigit() else f"ranks {ranks}"


def rank_count(ranks: object) -> int:
    """Return the number of ranks in a list, or in folded text such as `0-2,5`."""
    if isinstance(ranks, str):
        spans = re.findall(r"(\d{1,9})(?:-(\d{1,9}))?", ranks)
        return sum(max(0, int(last or first) - int(first) + 1) for first, last in spans)
    return len(items(ranks))


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_plain(item)}" for key, item in value.items() if item is not None)
    if isinstance(value, list):
        if value and all(is_number(item) for item in value):
            return compress(value)
        return ", ".join(_plain(item) for item in value)
    return "" if value is None else str(value)
