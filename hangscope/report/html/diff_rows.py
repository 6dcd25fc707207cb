"""The call diff as the page lists it: rows, and runs of alike calls folded between them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.pictures import CallDiff, DiffGroup, DiffRow

CONTEXT = 2
AHEAD = 3  # of a long run that only one side made, so many at its ends are shown
MIN_FOLD = 4
MANY, FEW_ROWS = 12, 60  # sides that part so often play different parts: where they stand now is at the end
ROWS = 400  # a diff with more differing rows than a page can hold is cut, and says so


@dataclass(frozen=True, slots=True)
class Run:
    """Rows that are shown, or folded into one line that says how many there are."""

    rows: tuple[DiffRow, ...]
    folded: str = ""


@dataclass(frozen=True, slots=True)
class DiffList:
    """A call diff with its rows in runs. `cut` rows before them, with `cut_differences`, are not listed.

    `silent`: the ranks of columns without any known collective.
    """

    diff: CallDiff
    runs: tuple[Run, ...]
    labels: dict[int, DiffGroup]
    cut: int
    cut_differences: int
    silent: tuple[str, ...]


def diff_list(diff: CallDiff) -> DiffList:
    """Return the diff with identical rows folded, except some around each difference."""
    rows = diff.rows[-(ROWS if diff.differences <= MANY else FEW_ROWS) :]
    matters = [bool(row.differs) or row.is_open for row in rows]
    near = [any(matters[max(0, i - CONTEXT) : i + CONTEXT + 1]) for i in range(len(rows))]
    if not any(matters):
        near = [i >= len(rows) - MIN_FOLD for i in range(len(rows))]
    for start, end in _ahead(rows):
        near[start + AHEAD : end - AHEAD] = [False] * max(0, end - start - 2 * AHEAD)
    runs: list[Run] = []
    start = 0
    while start < len(rows):
        end = start
        while end < len(rows) and near[end] == near[start]:
            end += 1
        words = ""
        if not near[start] and end - start >= MIN_FOLD:
            are_alone = any(row.differs for row in rows[start:end])
            words = "collectives that were not reached" if are_alone else "identical collectives"
        runs.append(Run(tuple(rows[start:end]), words))
        start = end
    labels = {group.gid: group for group in diff.groups}
    numbers = {row.differs for row in diff.rows if row.differs} - {row.differs for row in rows}
    silent = tuple(
        c.ranks
        for i, c in enumerate(diff.classes)
        if diff.rows and all(row.cells[i].mark in ("unseen", "no_part") for row in diff.rows)
    )
    return DiffList(diff, tuple(runs), labels, len(diff.rows) - len(rows), len(numbers), silent)


def _ahead(rows: Sequence[DiffRow]) -> Iterator[tuple[int, int]]:
    """Yield the runs of completed collectives that only the first column issued: how far it continued alone."""
    start = None
    for i, row in enumerate([*rows, None]):
        alone = (
            row is not None
            and row.differs is not None
            and row.cells[0].state == "done"
            and all(cell.mark in ("not_reached", "unseen", "no_part") for cell in row.cells[1:])
        )
        if alone and start is None:
            start = i
        elif not alone and start is not None:
            if i - start > 2 * AHEAD + MIN_FOLD:
                yield start, i
            start = None
