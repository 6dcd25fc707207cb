"""The merged stacks as the page lists them: one row per branch, with library frames folded into their number."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from hangscope.knowledge.callsite import is_user
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.rankset import spans
from hangscope.report.schema.document import BranchPart, Document

BRANCHES = 60
DEEPEST = 8  # further indents would leave no room for text


@dataclass(frozen=True, slots=True)
class BranchRow:
    """One branch with its lines, each with whether it is user code. `role` is culprit where all its ranks are named."""

    branch: BranchPart
    indent: int
    role: str
    lines: tuple[tuple[str, bool], ...]


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
    named = frozenset(document.verdict.culprit_ranks if document.verdict is not None else ())
    rows = []
    depths = [*(branch.depth for branch in branches[1:]), 0]
    for branch, next_depth in zip(branches[:BRANCHES], depths, strict=False):
        is_named = all(rank in named for span in spans(branch.ranks) for rank in span)
        lines = tuple(_lines(branch.frames, is_leaf=next_depth <= branch.depth))
        rows.append(BranchRow(branch, min(branch.depth, DEEPEST), "culprit" if is_named else "", lines))
    return StackRows(tuple(rows), ranks, len(branches) - len(rows) + (document.stacks_left_out or 0))


def _lines(frames: tuple[Frame, ...], *, is_leaf: bool) -> Iterator[tuple[str, bool]]:
    """Yield the frames of user code, and of a leaf the innermost frame, where it is."""
    last = frames[-1:] if is_leaf else ()
    for user, run in groupby(frames[: len(frames) - len(last)], is_user):
        alike = list(run)
        if user or len(alike) == 1:
            yield from ((str(frame), user) for frame in alike)
        else:
            yield f"… {len(alike)} frames of libraries", False
    yield from ((str(frame), is_user(frame)) for frame in last)
