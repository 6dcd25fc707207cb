"""How one list of calls becomes another: what was added, left out, exchanged or swapped so that the rest matches again."""

from __future__ import annotations

from collections import Counter
from enum import Enum

import numpy as np

from hangscope.model.dataclass import dataclass

LONGEST = 40  # calls that one edit adds, leaves out or swaps


class How(Enum):
    """What a rank did that its peers did not."""

    ADDED = "added"
    LEFT_OUT = "left out"
    SWAPPED = "swapped"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Edit:
    """One edit: the rows of the rank's own list and of its peers' that it concerns, and how many calls behind it match, and do not (`left`)."""

    how: How
    own: tuple[int, ...]
    peers: tuple[int, ...]
    matched: int
    left: int


def edit_between(
    own: np.ndarray, at: int, peers: np.ndarray, there: int, alike: bool, in_step: bool = False
) -> Edit:
    """Return the edit at the first difference of two lists of tokens, `own[at]` and `peers[there]`: the one behind which most matches.

    `alike`: these two calls differ in sizes, type or line alone; `in_step`: so do all behind them.
    """
    rows = [*range(there, len(peers)), *_continued(peers, there)]
    mine, theirs, recorded = own[at:], peers[rows], len(peers) - there
    if not alike and mine[0] not in peers and not _same(mine[1:], theirs[1:]):
        found = [(1, How.ADDED, 1, 0)]  # its peers never make this call, and nothing behind it is in step
    else:
        found = [(_same(mine[1:], theirs[1:]), How.REPLACED, 1, 1)]
        for size in range(1, LONGEST):
            ahead = size + 1
            if ahead <= min(len(mine), recorded) and Counter(mine[:ahead].tolist()) == Counter(
                theirs[:ahead].tolist()
            ):
                # A long stretch has the same calls by chance: two periods of one loop, out of step.
                kept = ahead - size // 2
                found.append((kept + _same(mine[ahead:], theirs[ahead:]), How.SWAPPED, ahead, ahead))
            if size < len(mine):
                found.append((_same(mine[size:], theirs), How.ADDED, size, 0))
                # A stretch of calls that a branch makes, of which the first one spares another later.
                if not in_step:
                    found.append((_same(mine[size:], theirs[1:]), How.REPLACED, size, 1))
            if size < len(theirs):
                found.append((_same(mine, theirs[size:]), How.LEFT_OUT, 0, size))

    def behind(one: tuple[int, How, int, int]) -> tuple[int, int]:
        """Return how many calls match behind an edit, and how many do not."""
        rest = mine[one[2] :], theirs[one[3] :]
        matched = _same(*rest)
        return matched, min(map(len, rest)) - matched

    best = max(found, key=lambda one: (one[0], -behind(one)[1]))
    (_, how, here, other), (matched, left) = best, behind(best)
    return Edit(how, tuple(range(at, at + here)), tuple(rows[:other]), matched, left)


def _continued(peers: np.ndarray, there: int) -> range:
    """Return the rows that followed the last call where it occurred before: how the list goes on once its rank is free."""
    before = np.flatnonzero(peers[:there] == peers[-1])
    return range(int(before[-1]) + 1, there) if before.size else range(0)


def _same(one: np.ndarray, other: np.ndarray) -> int:
    """Return how many tokens two lists have in common from their start."""
    length = min(len(one), len(other))
    unlike = np.flatnonzero(one[:length] != other[:length])
    return int(unlike[0]) if unlike.size else length
