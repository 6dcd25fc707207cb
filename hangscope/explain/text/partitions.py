"""Ranks that are in different collectives as text shows it, and which of them are the outliers.

The outliers are the minority; in a tie the ranks of the one side that printed what no other rank did, else the side off the training step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangscope.explain.finding import Different, OwnCall, StuckCall
from hangscope.explain.statements.statements import Statements
from hangscope.knowledge.library import off_the_step, own_knowledge
from hangscope.model.incident import CallKind, Stack


def last_call(rank: int, statements: Statements) -> StuckCall:
    """Return the collective that a rank was in, as far as its stack or traceback shows it."""
    where = statements.whereabouts.get(rank)
    return StuckCall(rank=rank, kind=where.call if where is not None else None)


def different(
    seq: int | None,
    partitions: Sequence[Sequence[int]],
    kinds: Mapping[int, CallKind],
    statements: Statements,
) -> Different:
    """Return the finding that ranks are in different collectives. `partitions` are the ranks of each; they need no order."""
    sides = sorted(map(tuple, partitions), key=lambda ranks: (-len(ranks), ranks))
    tie = 2 * len(sides[0]) <= sum(map(len, sides))
    majority, outliers = sides[0], tuple(sorted(r for side in sides[1:] for r in side))
    if tie and len(sides) == 2 and (off := outlier_of_two(sides, kinds, statements)) is not None:
        majority, outliers, tie = sides[1 - off], sides[off], False
    stuck = StuckCall(None, seq, majority[0], kinds.get(majority[0]))
    own = OwnCall(kinds.get(outliers[0]) if outliers else None, seq)
    return Different(() if tie else outliers, stuck, own, tie=tie)


def outlier_of_two(
    sides: Sequence[Sequence[int]], kinds: Mapping[int, CallKind], statements: Statements
) -> int | None:
    """Return which of two even sides is the outlier: the one that alone printed a telling line, else the one off the training step."""
    telling = {line.ranks for line in statements.outlier_lines if line.decides}
    if len(telling) == 1 and telling <= {*map(tuple, sides)}:
        return [*map(tuple, sides)].index(telling.pop())
    return off_the_step(_stack(sides[0], kinds), _stack(sides[1], kinds), own_knowledge())


def _stack(side: Sequence[int], kinds: Mapping[int, CallKind]) -> Stack:
    """Return the first stack of a side that is not empty."""
    return next((kinds[rank].stack for rank in side if rank in kinds and kinds[rank].stack), ())
