"""The call diff as the page lists it: rows, and runs of alike calls folded between them."""

from __future__ import annotations

from dataclasses import dataclass

from hangscope.report.page_data import CallDiff, DiffGroup, DiffRow

CONTEXT = 2
MIN_FOLD = 4
MANY, FEW_ROWS = 12, 60  # sides that part so often play different parts: where they stand now is at the end
ROWS = 400  # a diff with more differing rows than a page can hold is cut, and says so


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are shown, or folded behind how many there are."""

    rows: tuple[DiffRow, ...]
    folded: bool = False


@dataclass(frozen=True, slots=True)
class DiffList:
    """A call diff with its rows in runs. `cut` rows before them, with `cut_differences`, are not listed.

    `silent`: the ranks of columns of which no call is known.
    """

    diff: CallDiff
    runs: tuple[Run, ...]
    labels: dict[int, DiffGroup]
    cut: int
    cut_differences: int
    silent: tuple[str, ...]


def diff_list(diff: CallDiff) -> DiffList:
    """Return the diff with what is alike folded, but for some calls around each difference."""
    rows = diff.rows[-(ROWS if diff.differences <= MANY else FEW_ROWS) :]
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
    labels = {group.gid: group for group in diff.groups}
    numbers = {row.differs for row in diff.rows if row.differs} - {row.differs for row in rows}
    silent = tuple(
        c.ranks
        for i, c in enumerate(diff.classes)
        if diff.rows and all(row.cells[i].mark in ("unseen", "no_part") for row in diff.rows)
    )
    return DiffList(diff, tuple(runs), labels, len(diff.rows) - len(rows), len(numbers), silent)


def is_open(row: DiffRow) -> bool:
    """Return whether a call of this row is not over."""
    return any(cell.state not in ("", "done") for cell in row.cells)
