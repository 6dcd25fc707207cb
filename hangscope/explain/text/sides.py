"""Two sides of a divergence as text shows them, and which one is odd: the smaller, or in a tie the one off the training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hangscope.explain.finding import Different, OwnCall, StuckCall
from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind, Incident, Stack
from hangscope.knowledge.library import off_the_step, own_knowledge


def two_sides(
    incident: Incident,
    statements: Statements,
    seq: int | None,
    sides: Sequence[tuple[int, ...]],
    kinds: Mapping[int, CallKind],
) -> Different:
    """Return the finding that ranks are in different calls. `sides` are the ranks of each, largest first."""
    tie = len(sides) > 1 and 2 * len(sides[0]) <= sum(map(len, sides))
    majority, odd = sides[0], tuple(sorted(r for side in sides[1:] for r in side))
    if tie and len(sides) == 2:
        off = off_the_step(_stack(sides[0], kinds), _stack(sides[1], kinds), own_knowledge())
        if off is not None:
            majority, odd, tie = sides[1 - off], sides[off], False
    waiting = tuple(r for r in sorted(incident.ranks) if tie or r not in odd)
    stuck = StuckCall(None, seq, majority[0], kinds.get(majority[0]))
    own = OwnCall(kinds.get(odd[0]) if odd else None, seq)
    return Different(() if tie else odd, stuck, own, waiting=waiting, reached=frozenset(waiting), tie=tie)


def _stack(side: Sequence[int], kinds: Mapping[int, CallKind]) -> Stack:
    for rank in side:
        kind = kinds.get(rank)
        if kind is not None and kind.stack:
            return kind.stack
    return ()
