"""Two sides of a divergence as text shows them, and which one is odd.

It is the smaller one; in a tie the side of the one rank that printed what no other did, else the one off the training step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangscope.explain.finding import Different, OwnCall, StuckCall
from hangscope.explain.statements.statements import Statements
from hangscope.knowledge.library import off_the_step, own_knowledge
from hangscope.model.incident import CallKind, Stack


def stood(rank: int, statements: Statements) -> StuckCall:
    """Return the call that a rank stood in, as far as its stack or traceback tells."""
    where = statements.whereabouts.get(rank)
    return StuckCall(rank=rank, kind=where.call if where is not None else None)


def two_sides(
    seq: int | None,
    sides: Sequence[tuple[int, ...]],
    kinds: Mapping[int, CallKind],
    statements: Statements,
) -> Different:
    """Return the finding that ranks are in different calls. `sides` are the ranks of each, largest first."""
    tie = 2 * len(sides[0]) <= sum(map(len, sides))
    majority, odd = sides[0], tuple(sorted(r for side in sides[1:] for r in side))
    if tie and len(sides) == 2:
        telling = {odd.ranks for odd in statements.outlier_lines if odd.telling}
        odd_side = sides.index(next(iter(telling))) if len(telling) == 1 and telling <= {*sides} else None
        stacks = _stack(sides[0], kinds), _stack(sides[1], kinds)
        off = odd_side if odd_side is not None else off_the_step(*stacks, own_knowledge())
        if off is not None:
            majority, odd, tie = sides[1 - off], sides[off], False
    stuck = StuckCall(None, seq, majority[0], kinds.get(majority[0]))
    return Different(() if tie else odd, stuck, OwnCall(kinds.get(odd[0]) if odd else None, seq), tie=tie)


def _stack(side: Sequence[int], kinds: Mapping[int, CallKind]) -> Stack:
    """Return the first stack of a side that is not empty."""
    return next((kinds[rank].stack for rank in side if rank in kinds and kinds[rank].stack), ())
