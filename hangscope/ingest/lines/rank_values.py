"""What a text lists by rank, one line for each, and the one rank whose number is far off, whose word is another one or that differs in a column.

forward_backward:
Rank 0: 1104.93ms
Rank 1: 2348.20ms

kernels:
rank0   ncclDevKernel_AllReduce(...)
rank1   sm90_gemm_f16

rank  host   dp     in
 0    gx-11  48209  tp all_reduce
 1    gx-11  48208  tp all_gather
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import median

from hangscope.ingest.lines.prefixes import strip_prefix
from hangscope.ingest.lines.vocabulary import words
from hangscope.model.regex import regex

_LEAST = 4  # ranks
_SHOWN, _TITLE = 80, 60  # characters of a row and of what stands above a list
_OFF, _ALIKE = 1.5, 1.25  # times the median: of the one that is off, and of the others at most
_DIGITS = regex(r"\d+")

_COLUMNS = 16

_Rows = dict[int, tuple[str, str]]  # by rank, the two parts of what is listed for it


def outlier(lines: Iterable[tuple[int, str]]) -> tuple[int, str, bool] | None:
    """Return the one rank that a list sets apart, a sentence about it and the others, and whether its word and not its number does so."""
    for title, rows in _lists(lines):
        if len(rows) < _LEAST:
            continue
        if not any(map(_is_number, rows.values())):
            each = {rank: _DIGITS.sub("#", word) for rank, (word, _) in rows.items()}
            (usual, times), *others = Counter(each.values()).most_common()
            if times == len(rows) - 1 and others:
                rank = next(rank for rank, word in each.items() if word != usual)
                other = next(rank for rank, word in each.items() if word == usual)
                own, theirs = (" ".join("".join(rows[r]).split())[:_SHOWN].rstrip() for r in (rank, other))
                shows = f"rank {rank} differs from all others in a list by rank: '{own}', where the others have '{theirs}'"
                return rank, shows, True
        elif all(map(_is_number, rows.values())):
            numbers = {rank: float(number) for rank, (number, _) in rows.items()}
            if (far := _off(numbers)) is not None:
                near = [number for rank, number in numbers.items() if rank != far]
                named = strip_prefix(title).text.strip(" :")[:_TITLE]
                head = f"in the list '{named}' " if named else ""
                shows = f"{head}rank {far} has {numbers[far]:g} {rows[far][1]}".rstrip()
                return far, f"{shows}, the others {min(near):g} to {max(near):g}", False
    return None


def odd_cells(lines: Iterable[tuple[int, str]]) -> tuple[tuple[int, str], ...]:
    """Return who has another value than most others in a column of a table by rank, and what: (rank, `'48208' in column dp (most others '48209')`)."""
    header: list[str] = []
    rows: dict[int, list[str]] = {}
    for _, text in lines:
        cells = [cell for cell in words("border_of_cells").split(text.strip(" |\t")) if cell]
        if words("header_by_rank").match(text.strip()) and len(cells) > 1:
            header, rows = cells, {}
        elif header and len(cells) > 1 and cells[0].isdigit() and int(cells[0]) not in rows:
            last = len(header) - 1
            rows[int(cells[0])] = [*cells[1:last], " ".join(cells[last:])][:_COLUMNS]
        elif rows and text.strip():
            break
    found = []
    for place in range(max(map(len, rows.values()), default=0) if len(rows) >= _LEAST else 0):
        column = {rank: " ".join(cells[place : place + 1]) for rank, cells in rows.items()}
        usual, times = Counter(column.values()).most_common(1)[0]
        odd = [rank for rank, value in column.items() if value != usual]
        if 0 < len(odd) <= len(rows) // _LEAST and len(odd) < times:
            found += [
                (rank, f"'{column[rank]}' in column '{header[place + 1]}' (most others '{usual}')")
                for rank in odd
            ]
    return tuple(found)


def _lists(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[str, _Rows]]:
    """Yield each list by rank with the line above it; a line of another form, or a rank that comes again, ends one."""
    title, rows = "", _Rows()
    for text in (text for _, text in lines if text.strip()):
        number = (
            words("number_by_rank").match(strip_prefix(text).text.strip())
            if words("rank_with_number").search(text)
            else None
        )
        row = number or words("word_by_rank").match(text.strip())
        if rows and (row is None or int(row[1]) in rows):
            yield title, rows
            rows = {}
        if row is not None:
            rows[int(row[1])] = (row[2], row[3])
        elif not title or text.rstrip().endswith(":"):
            title = text
    yield title, rows


def _is_number(row: tuple[str, str]) -> bool:
    return row[0][0].isdigit()


def _off(numbers: dict[int, float]) -> int | None:
    """Return the one rank whose number is far from those of all others, which are alike."""
    middle = median(numbers.values())
    apart = [rank for rank, number in numbers.items() if not _within(number, middle, _ALIKE)]
    return apart[0] if len(apart) == 1 and not _within(numbers[apart[0]], middle, _OFF) else None


def _within(number: float, middle: float, times: float) -> bool:
    return middle / times <= number <= middle * times if middle else not number
