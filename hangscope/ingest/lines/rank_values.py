"""What a text lists by rank, one line for each, and the one rank whose number is far off or whose word is another one.

forward_backward:
Rank 0: 1104.93ms
Rank 1: 2348.20ms

kernels:
rank0   ncclDevKernel_AllReduce(...)
rank1   sm90_gemm_f16
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from statistics import median

from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.model.regex import regex

_LEAST = 4  # ranks
_SHOWN = 80  # characters of a row
_OFF, _ALIKE = 1.5, 1.25  # times the median: of the one that is off, and of the others at most
_HINT = regex(r"(?i)rank[ _:=#\[]{0,2}\d")
_ROW = regex(
    r"(?i)^\W{0,20}rank[ _:=#\[]{0,2}(\d{1,5})\W{1,6}(\d{1,12}(?:\.\d{1,9})?) ?([a-zµ%/]{0,8})\W{0,4}$"
)


_WORDS = regex(
    r"(?i)^\W{0,20}(?:(?:global[_ ])?rank|gpu|worker)[ _:=#\[]{0,2}(\d{1,5})(?![\d.])[\])]?[\s:=|-]{1,12}([A-Za-z_][^\s(<,;:]{2,120})(.{0,160})$"
)
_TABLE = 3  # rows of which one may be the outlier
_DIGITS = regex(r"\d+")


def odd_word(lines: Iterable[tuple[int, str]]) -> tuple[int | None, str]:
    """Return the rank beside whose number a list has another word than beside all others; (None, "") where no list has one."""
    rows = dict[int, tuple[str, str]]()
    for _, raw in (*lines, (0, "")):
        row = _WORDS.match(raw.strip())
        if row is not None and int(row[1]) not in rows:
            rows[int(row[1])] = _DIGITS.sub("#", row[2]), " ".join(f"{row[2]}{row[3]}".split())
            continue
        times = Counter(word for word, _ in rows.values())
        if len(rows) > _TABLE and sorted(times.values()) == [1, len(rows) - 1]:
            rank, (word, shown) = next((r, w) for r, w in rows.items() if times[w[0]] == 1)
            usual = next(text for other, text in rows.values() if other != word)
            said = f"'{shown[:_SHOWN].rstrip()}', where the others have '{usual[:_SHOWN].rstrip()}'"
            return rank, f"rank {rank} differs from all others in a list by rank: {said}"
        rows = {}
    return None, ""


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
