"""Numbers that a text lists by rank, one line for each, and the one that is far off.

forward_backward:
Rank 0: 1104.93ms
Rank 1: 2348.20ms
"""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median

from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.model.regex import regex

_LEAST = 4  # ranks
_OFF, _ALIKE = 1.5, 1.25  # times the median: of the one that is off, and of the others at most
_HINT = regex(r"(?i)rank[ _:=#\[]{0,2}\d")
_ROW = regex(
    r"(?i)^\W{0,20}rank[ _:=#\[]{0,2}(\d{1,5})\W{1,6}(\d{1,12}(?:\.\d{1,9})?) ?([a-zµ%/]{0,8})\W{0,4}$"
)


def uneven(lines: Iterable[tuple[int, str]]) -> tuple[int | None, str]:
    """Return the rank whose number is far off in a list, and what it shows beside the others; (None, "") where no list has one."""
    title, rows = "", dict[int, tuple[float, str]]()
    for _, raw in (*lines, (0, "")):
        row = _ROW.match(strip_prefix(raw).text.strip()) if _HINT.search(raw) else None
        if row is not None and int(row[1]) not in rows:
            rows[int(row[1])] = float(row[2]), row[3]
            continue
        if (rank := _off(rows)) is not None:
            value, unit = rows[rank]
            others = [other for number, (other, _) in rows.items() if number != rank]
            named = strip_prefix(title).text.strip(" :")[:60]
            head = f"in the list '{named}' " if named else ""
            shows = f"{head}rank {rank} has {value:g} {unit}".rstrip()
            return rank, f"{shows}, the others {min(others):g} to {max(others):g}"
        if raw.strip():
            title, rows = (raw if raw.rstrip().endswith(":") or not title else title), {}
    return None, ""


def _off(rows: dict[int, tuple[float, str]]) -> int | None:
    """Return the one rank whose number is far from those of all others, which are alike."""
    if len(rows) < _LEAST:
        return None
    middle = median(value for value, _ in rows.values())
    apart = [rank for rank, (value, _) in rows.items() if not _within(value, middle, _ALIKE)]
    return apart[0] if len(apart) == 1 and not _within(rows[apart[0]][0], middle, _OFF) else None


def _within(value: float, middle: float, times: float) -> bool:
    return middle / times <= value <= middle * times if middle else not value
