"""The merged stacks as the page lists them: one row per branch, with library frames folded into their number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from hangscope.knowledge.callsite import is_user
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.report.reasons import mentions
from hangscope.report.schema.document import BranchPart, Document

BRANCHES = 60
DEEPEST = 8  # further indents would leave no room for text


@dataclass(frozen=True, slots=True)
class Line:
    """One frame, or how many library frames are folded (`text` empty)."""

    text: str
    user: bool = False
    folded: int = 0


@dataclass(frozen=True, slots=True)
class BranchRow:
    """One branch. `role` is culprit where all its ranks are named."""

    indent: int
    ranks: str
    count: int
    role: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class StackRows:
    """All of it; `left_out` branches are not listed."""

    rows: tuple[BranchRow, ...]
    ranks: int
    left_out: int


def stack_rows(document: Document) -> StackRows | None:
    """Return the tree of the ranks' stacks; None where fewer than two ranks left one."""
    branches = document.stacks
    ranks = sum(branch.count for branch in branches if branch.depth == 0)
    if ranks < 2:
        return None
    named = document.verdict.culprit_ranks if document.verdict is not None else ()
    rows = tuple(
        BranchRow(
            min(branch.depth, DEEPEST),
            branch.ranks,
            branch.count,
            "culprit" if branch.count <= len(named) and _all_named(branch, named) else "",
            tuple(_lines(branch, leaf=_is_leaf(branches, i))),
        )
        for i, branch in enumerate(branches[:BRANCHES])
    )
    return StackRows(rows, ranks, len(branches) - len(rows) + (document.stacks_left_out or 0))


def _all_named(branch: BranchPart, named: Sequence[int]) -> bool:
    return sum(mentions(f"ranks {branch.ranks}", (rank,)) for rank in named) == branch.count


def _is_leaf(branches: tuple[BranchPart, ...], index: int) -> bool:
    return index + 1 == len(branches) or branches[index + 1].depth <= branches[index].depth


def _lines(branch: BranchPart, *, leaf: bool) -> Iterator[Line]:
    """Yield the frames of user code, and of a leaf the innermost frame, where it is."""
    last = branch.frames[-1:] if leaf else ()
    for user, run in groupby(branch.frames[: len(branch.frames) - len(last)], is_user):
        frames = list(run)
        if user or len(frames) == 1:
            yield from (_line(frame) for frame in frames)
        else:
            yield Line("", folded=len(frames))
    yield from (_line(frame) for frame in last)


def _line(frame: Frame) -> Line:
    return Line(f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} in {frame.name}", is_user(frame))
