"""Two programs laid side by side, as a code diff lays two texts."""

from __future__ import annotations

from dataclasses import field
from difflib import SequenceMatcher

import numpy as np

from hangscope.model.dataclass import dataclass
from hangscope.model.incident import State
from hangscope.report.pictures.call_diff.behaviour import Program

_LEADING = 16


@dataclass(slots=True)
class Alignment:
    """How one program aligns with a base.

    `start` and `own_start`: the first rows of the base and of the other that can be compared. `matched` and `paired` give the other's row of a
    base row: the same call, or a different call at the same place. `inserted[i]`: the other's rows before base row i.
    """

    start: int
    own_start: int = 0
    matched: dict[int, int] = field(default_factory=dict)
    paired: dict[int, int] = field(default_factory=dict)
    inserted: dict[int, list[int]] = field(default_factory=dict)

    @property
    def last(self) -> int:
        """Return the last base row that the other reached, -1 where it reached none."""
        return max((*self.matched, *self.paired), default=-1)


def align(base: Program, other: Program) -> Alignment:
    """Return how `other` aligns with `base`: their common beginning first, then the longest runs in common."""
    begin, own_begin = _common_window(base, other)
    a, b = base.tokens[begin:], other.tokens[own_begin:]
    result = Alignment(begin, own_begin)
    common = 0
    while common < min(len(a), len(b)) and a[common] == b[common]:
        result.matched[begin + common] = own_begin + common
        common += 1
    if not common:
        lost, own_lost = _before_both(base, other, begin, own_begin)
        result.start, result.own_start = begin, own_begin = begin + lost, own_begin + own_lost
        a, b = a[lost:], b[own_lost:]
    matcher = SequenceMatcher(None, a[common:], b[common:], autojunk=False)
    begin, own_begin = begin + common, own_begin + common
    for word, i1, i2, j1, j2 in matcher.get_opcodes():
        if word == "equal":
            result.matched.update(
                zip(range(begin + i1, begin + i2), range(own_begin + j1, own_begin + j2), strict=True)
            )
        else:
            _pair(result, base, other, range(begin + i1, begin + i2), range(own_begin + j1, own_begin + j2))
    return result


def _common_window(base: Program, other: Program) -> tuple[int, int]:
    """Return from which rows on both programs kept the calls of all groups that they share."""
    begin = own_begin = 0
    for purpose in set(base.purpose.tolist()) & set(other.purpose.tolist()):
        rows, own_rows = _collectives(base, purpose), _collectives(other, purpose)
        if len(rows) and len(own_rows):
            first = max(int(base.seq[rows[0]]), int(other.seq[own_rows[0]]))
            lost, own_lost = rows[base.seq[rows] < first], own_rows[other.seq[own_rows] < first]
            # Where one lies wholly before the other, they have no window in common and are compared as they are.
            if len(lost) < len(rows) and len(own_lost) < len(own_rows):
                begin = max(begin, int(lost[-1]) + 1 if len(lost) else 0)
                own_begin = max(own_begin, int(own_lost[-1]) + 1 if len(own_lost) else 0)
    return begin, own_begin


def _before_both(base: Program, other: Program, begin: int, own_begin: int) -> tuple[int, int]:
    """Return how many sends and receives at the start of both windows only one ring still held.

    Pairs are numbered by each rank alone, so that their windows cannot be compared; what lies before the first common call is
    no difference where it is behind the first of its rank.
    """
    rows, own_rows = _leading(base, begin), _leading(other, own_begin)
    for row in range(rows + 1):
        for own in range(own_rows + 1):
            here, there = base.tokens[begin + row : begin + row + 1], other.tokens[own_begin + own :][:1]
            if here and here == there:
                return row, own
    return 0, 0


def _leading(program: Program, start: int) -> int:
    """Return how many completed calls of pairs, none of them its rank's first, a window begins with."""
    count = 0
    for row in range(start, min(len(program), start + _LEADING)):
        if not program.is_p2p[row] or program.seq[row] <= 1 or program.state[row] != State.DONE:
            break
        count += 1
    return count


def _collectives(program: Program, purpose: int) -> np.ndarray:
    return np.flatnonzero((program.purpose == purpose) & ~program.is_p2p)


def _pair(result: Alignment, base: Program, other: Program, rows: range, own_rows: range) -> None:
    """Pair different collectives at the same place of the same group; the others are inserted or skipped."""
    rest = list(own_rows)
    for row in rows:
        for place, own in enumerate(rest):
            if (
                base.purpose[row] == other.purpose[own]
                and base.seq[row] == other.seq[own]
                and base.is_p2p[row] == other.is_p2p[own]
            ):
                if rest[:place]:
                    result.inserted.setdefault(row, []).extend(rest[:place])
                result.paired[row] = own
                rest = rest[place + 1 :]
                break
    if rest:
        result.inserted.setdefault(rows.stop, []).extend(rest)
