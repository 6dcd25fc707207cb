"""The call diff as the page lists it: rows, and runs of alike calls folded between them."""

from __future__ import annotations

from hangscope.records import dataclass
from hangscope.report.page_data import CallDiff, DiffRow

CONTEXT = 2
MIN_FOLD = 4
ROWS = 400  # a diff with more differing rows than a page can hold is cut, and says so


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are shown, or folded behind how many there are."""

    rows: tuple[DiffRow, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class DiffList:
    """A call diff with its rows in runs. `opens`: the numbers of rows that begin a difference, by row."""

    diff: CallDiff
    runs: tuple[Run, ...]
    labels: dict[int, tuple[str, int]]
    cut: int


def diff_list(diff: CallDiff) -> DiffList:
    """Return the diff with what is alike folded, but for some calls around each difference."""
    rows = diff.rows[-ROWS:]
    matters = [bool(row.differs) or is_open(row) for row in rows]
    near = [any(matters[max(0, i - CONTEXT) : i + CONTEXT + 1]) for i in range(len(rows))]
    if not any(matters):
        near = [i >= len(rows) - MIN_FOLD for i in range(len(rows))]
    runs: list[Run] = []
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and near[end] == near[start]:
            end += 1
        fold = not near[start] and end - start >= MIN_FOLD
        runs.append(Run(tuple(rows[start:end]), fold))
        start = end
    labels = {group.gid: (group.label, group.number) for group in diff.groups}
    return DiffList(diff, tuple(runs), labels, len(diff.rows) - len(rows))


def is_open(row: DiffRow) -> bool:
    """Return whether a call of this row is not over."""
    return any(cell.state not in ("", "done") for cell in row.cells)
