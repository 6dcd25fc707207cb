"""Ranks that left the pattern of their own program shortly before the freeze."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hangscope.align.patterns import expected
from hangscope.align.program import HISTORY, Programs
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import CallKind

LAST_CALLS = 48  # how far back a rank's own deviations are looked for


@dataclass(frozen=True, slots=True)
class Deviation:
    """A call by which a rank left the pattern of its own program, and what the pattern calls for before it or instead.

    `foreign`: no rank made the call before, so it was made in addition; else `wanted` was left out before it.
    """

    row: int
    kind: CallKind
    seq: int
    wanted: tuple[CallKind, ...]
    foreign: bool
    last: bool

    @property
    def is_p2p(self) -> bool:
        """Return whether it is about sends and receives: which of them were left out, or that this one is another."""
        return self.kind.is_p2p if self.foreign else any(kind.is_p2p for kind in self.wanted)


def deviations(programs: Programs, ranks: Iterable[int]) -> dict[int, list[Deviation]]:
    """Return which of a rank's last calls leave its own pattern and no other's of these ranks, latest first.

    What several of them do alike, such as the beginning of an epoch, is new to each and nobody's fault. Ranks without
    such a call are left out.
    """
    breaks = {rank: _breaks(programs, rank) for rank in sorted(set(ranks))}
    steps_made = Counter(step for steps in breaks.values() for step in steps)
    makers = Counter(token for rank in breaks for token in set(programs.of(rank).tokens))
    known = {token for token, count in makers.items() if count > 1}
    own = {
        rank: [row for step, row in steps.items() if steps_made[step] == 1] for rank, steps in breaks.items()
    }
    return {
        rank: [_deviation(programs, rank, row, known) for row in sorted(rows, reverse=True)]
        for rank, rows in own.items()
        if rows
    }


def _breaks(programs: Programs, rank: int) -> dict[tuple[int, int], int]:
    """Return the rows among a rank's last calls that leave its pattern, by the step from the call before."""
    tokens = programs.of(rank).tokens
    rows = range(max(1, len(tokens) - LAST_CALLS), len(tokens))
    return {(tokens[row - 1], tokens[row]): row for row in rows if programs.keeps_pattern(rank, row) is False}


def _deviation(programs: Programs, rank: int, row: int, known: set[int]) -> Deviation:
    tokens, start = programs.of(rank).tokens, max(0, row - HISTORY)
    skipped = programs.left_out(rank, row, rank, row)
    wanted = skipped or [start + place for place in expected(tokens[start:row], 1)]
    foreign = not skipped and tokens[row] not in known and tokens[row] not in tokens[:row]
    _, seq, kind, _ = programs.call(rank, row)
    calls = tuple(programs.call(rank, place)[2] for place in wanted)
    return Deviation(row, kind, seq, calls, foreign, last=row == len(tokens) - 1)
