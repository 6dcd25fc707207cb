"""What the page lists row by row: the call diff, the merged stacks, and the folded rank map. Runs of alike rows are one line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

from hangscope.knowledge.callsite import is_user
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.rankset import spans
from hangscope.report.schema.document import BranchPart, Document
from hangscope.report.schema.pictures import CallDiff, DiffGroup, DiffRow, FoldRow, StateRow
from hangscope.report.words import ROLE_WORDS, ROLES, duration

BRANCHES = 60
DEEPEST = 8  # further indents would leave no room for text


@dataclass(frozen=True, slots=True)
class StackRows:
    """The branches, each with its indent, its role and its lines, which may be user code; `left_out` of them are not listed."""

    rows: tuple[tuple[BranchPart, int, str, tuple[tuple[str, bool], ...]], ...]
    ranks: int
    left_out: int


def stack_rows(document: Document) -> StackRows | None:
    """Return the tree of the ranks' stacks; None where fewer than two ranks left one."""
    branches = document.stacks
    ranks = sum(branch.count for branch in branches if branch.depth == 0)
    if ranks < 2:
        return None
    named = frozenset(document.verdict.culprit_ranks if document.verdict is not None else ())
    rows = []
    branches_with = Counter(frame for branch in branches for frame in set(branch.frames))
    depths = [*(branch.depth for branch in branches[1:]), 0]
    for branch, next_depth in zip(branches[:BRANCHES], depths, strict=False):
        is_named = all(rank in named for span in spans(branch.ranks) for rank in span)
        fork = _fork(branch, branches_with)
        lines = tuple(_lines(branch.frames, fork, next_depth <= branch.depth))
        rows.append((branch, min(branch.depth, DEEPEST), "culprit" if is_named else "", lines))
    return StackRows(tuple(rows), ranks, len(branches) - len(rows) + (document.stacks_left_out or 0))


def _fork(branch: BranchPart, branches_with: Counter[Frame]) -> int:
    """Return which frame of a branch is the first that only its ranks have: of a branch at the root, inside of one that others have; -1: none."""
    is_own = [branches_with[frame] == 1 for frame in branch.frames]
    shared = [branch.depth > 0, *(not own for own in is_own)]
    return next((i for i, own in enumerate(is_own) if own and shared[i]), -1)


def _lines(frames: tuple[Frame, ...], fork: int, is_leaf: bool) -> Iterator[tuple[str, bool]]:
    """Yield the frames of user code, the one at which a branch forks, and the innermost of a leaf, where it is."""
    shown = {fork, len(frames) - 1 if is_leaf else -1}
    for (user, alone), run in groupby(enumerate(frames), lambda item: (is_user(item[1]), item[0] in shown)):
        alike = [frame for _, frame in run]
        if user or alone or len(alike) == 1:
            yield from ((str(frame), user) for frame in alike)
        else:
            yield f"… {len(alike)} frames of libraries", False


_WIDTH = 160


def bar(row: FoldRow) -> list[tuple[str, float, float]]:
    """Return the parts of the bar: the role, where it begins and its width in pixels."""
    parts, x = [], 0.0
    for role, number in zip(ROLES, row.states, strict=False):
        if number:
            width = round(_WIDTH * number / max(1, row.count), 1)
            parts.append((role, round(x, 1), width))
            x += width
    return parts


def states_of(row: FoldRow, legend: Sequence[StateRow]) -> str:
    """Return how many ranks are in each state, in the words of the map's legend."""
    words = {**ROLE_WORDS, **{state.role: state.label for state in legend}}
    return ", ".join(f"{n:,} {words[role]}" for role, n in zip(ROLES, row.states, strict=False) if n)


def stalled(row: FoldRow) -> str:
    """Return when the ranks of a row stalled, after the first rank of the job; empty where that is not known."""
    ends = [ms for ms in (row.first_ms, row.last_ms) if ms is not None]
    return " to ".join(dict.fromkeys("first" if ms <= 0 else f"+{duration(ms / 1e3)}" for ms in ends))


CONTEXT = 2
FEW = 3  # differences with rows around them even where all calls are over: of many, the last ones tell most
AHEAD = 3  # of a long run that only one side made, so many at its ends are shown
MIN_FOLD = 4
MANY, FEW_ROWS = 12, 60  # sides that part so often play different parts: where they stand now is at the end
ROWS = 400  # a diff with more differing rows than a page can hold is cut, and says so


@dataclass(frozen=True, slots=True)
class DiffList:
    """A call diff with its rows in runs, each with what its rows are called where they are folded into one line.

    `cut` rows before them, with `cut_differences`, are not listed. So many columns are `silent`: none of their collectives is known.
    """

    diff: CallDiff
    runs: tuple[tuple[tuple[DiffRow, ...], str], ...]
    labels: dict[int, DiffGroup]
    cut: int
    cut_differences: int
    silent: int


def diff_list(diff: CallDiff) -> DiffList:
    """Return the diff with identical rows folded, except some around each difference."""
    rows = diff.rows[-(ROWS if diff.differences <= MANY else FEW_ROWS) :]
    matters = [bool(row.differs) or row.is_open for row in rows]
    reach = [CONTEXT if row.is_open or diff.differences <= FEW else 0 for row in rows]
    near = [
        any(
            matters[j] and abs(i - j) <= reach[j]
            for j in range(max(0, i - CONTEXT), min(len(rows), i + CONTEXT + 1))
        )
        for i in range(len(rows))
    ]
    if not any(matters):
        near = [i >= len(rows) - MIN_FOLD for i in range(len(rows))]
    for start, end in _ahead(rows):
        near[start + AHEAD : end - AHEAD] = [False] * max(0, end - start - 2 * AHEAD)
    runs = []
    for is_near, run in groupby(zip(near, rows, strict=True), key=lambda item: item[0]):
        alike = tuple(row for _, row in run)
        words = ""
        if not is_near and len(alike) >= MIN_FOLD:
            are_alone = any(row.differs for row in alike)
            alike_in = "identical" if len(diff.classes) > 1 else "earlier"
            words = "collectives that were not reached" if are_alone else f"{alike_in} collectives"
        runs.append((alike, words))
    labels = {group.gid: group for group in diff.groups}
    numbers = {row.differs for row in diff.rows if row.differs} - {row.differs for row in rows}
    columns = zip(*(row.cells for row in diff.rows), strict=True)
    silent = sum(all(cell.mark in ("unseen", "no_part") for cell in column) for column in columns)
    return DiffList(diff, tuple(runs), labels, len(diff.rows) - len(rows), len(numbers), silent)


def _ahead(rows: Sequence[DiffRow]) -> Iterator[tuple[int, int]]:
    """Yield the runs of completed collectives that only the first column issued: how far it continued alone."""
    end = 0
    for is_alone, run in groupby(rows, _is_alone):
        start, end = end, end + len(list(run))
        if is_alone and end - start > 2 * AHEAD + MIN_FOLD:
            yield start, end


def _is_alone(row: DiffRow) -> bool:
    absent = all(cell.mark in ("not_reached", "unseen", "no_part") for cell in row.cells[1:])
    return row.differs is not None and row.cells[0].state == "done" and absent
