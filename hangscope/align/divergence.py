"""The first seq of a group at which its members issued collectives that cannot match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from hangscope.model.dataclass import dataclass

if TYPE_CHECKING:
    from hangscope.align.frontier import GroupFrontier, Member

DIFFERENCES = 256  # seqs with differing collectives that are examined
IN_STEP = 3  # equal collectives after a difference that prove it was an isolated one


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Members issued collectives at one seq that cannot match. `partitions`: the ranks of each, largest first."""

    seq: int
    partitions: tuple[tuple[int, ...], ...]


def first_mismatch(view: GroupFrontier, keys: np.ndarray) -> Mismatch | None:
    """Return the first seq at which retained collectives of two members cannot match, or None.

    `keys`: by kind, equal where collectives match. A mismatch that all members completed and after which they are in step again
    froze nothing: NCCL completes collectives of different types or sizes, with wrong results.
    """
    first, columns = common_window(view.members.values())
    differing = {first + place for place in differences(columns.values(), keys)}
    # A single collective that a log line states is compared with the others' at its seq.
    stated = {seq for m in view.members.values() if m.queue.told for seq in m.queue.seq.tolist()}
    for seq in sorted(differing | stated):
        partitions = _partitions(view, keys, seq)
        survived = seq not in stated and _survived(view, columns, first, seq, differing)
        if len(partitions) > 1 and not survived:
            return Mismatch(seq, partitions)
    return None


def common_window(members: Iterable[Member]) -> tuple[int, dict[int, np.ndarray]]:
    """Return the first seq that the records of all members retain, and by rank the kinds from there up to the first gap (one column for a role)."""
    recorded = [m for m in members if m.first_row and not m.queue.told]
    first = max((m.first_row for m in recorded), default=1)
    shared: dict[tuple[int, int], np.ndarray] = {}
    columns = {}
    for member in recorded:
        queue = member.queue
        if (key := (id(queue.seq), id(queue.kind))) not in shared:
            row = np.searchsorted(queue.seq, first)
            gaps = np.flatnonzero(np.diff(queue.seq[row:]) != 1)
            shared[key] = queue.kind[row:][: gaps[0] + 1 if gaps.size else None]
        columns[member.rank] = shared[key]
    return first, columns


def differences(columns: Iterable[np.ndarray], keys: np.ndarray) -> list[int]:
    """Return the first places at which columns of kinds hold kinds of different keys."""
    distinct = {id(column): keys[column] for column in columns}.values()
    least, most = np.full((2, max(map(len, distinct), default=0)), [[len(keys)], [-1]])
    for column in distinct:
        place = slice(len(column))
        least[place], most[place] = np.minimum(least[place], column), np.maximum(most[place], column)
    found: list[int] = np.flatnonzero(least < most)[:DIFFERENCES].tolist()
    return found


def _partitions(view: GroupFrontier, keys: np.ndarray, seq: int) -> tuple[tuple[int, ...], ...]:
    """Return the members by what they issued at a seq, largest partition first."""
    found: dict[int, list[int]] = defaultdict(list)
    for rank in sorted(view.members):
        if (index := view.kind_index(rank, seq)) is not None:
            found[int(keys[index])].append(rank)
    return tuple(sorted(map(tuple, found.values()), key=lambda ranks: (-len(ranks), ranks)))


def _survived(
    view: GroupFrontier, columns: dict[int, np.ndarray], first: int, seq: int, differing: set[int]
) -> bool:
    """Return whether every member completed its collective at a seq, and all issued the same ones after it."""
    if any(seq + step in differing for step in range(1, IN_STEP + 1)):
        return False
    later = all(first + len(column) > seq + IN_STEP for column in columns.values())
    return later and all((view.members[rank].completed or 0) >= seq for rank in columns)
