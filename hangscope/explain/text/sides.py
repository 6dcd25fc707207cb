"""Two sides of a divergence as text shows them, and which one is odd: the smaller, or in a tie the one off the common path."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from hangscope.explain.facts import Facts
from hangscope.explain.finding import Finding
from hangscope.incident import CallKind, Incident, Stack
from hangscope.knowledge.callsite import SIDE_WORK, shared_line, user_frames
from hangscope.knowledge.library import off_the_step, own_knowledge

_LOOP = re.compile(r"epoch|train|fit|loop|step|iteration", re.IGNORECASE)


def two_sides(
    incident: Incident,
    facts: Facts,
    seq: int | None,
    sides: Sequence[tuple[int, ...]],
    kinds: Mapping[int, CallKind],
) -> Finding:
    """Return the finding that ranks are in different calls. `sides` are the ranks of each, largest first."""
    tie = len(sides) > 1 and len(sides[0]) == len(sides[1])
    majority, odd = sides[0], tuple(sorted(r for side in sides[1:] for r in side))
    if tie and len(sides) == 2:
        off = off_the_path(_stack(sides[0], kinds, facts), _stack(sides[1], kinds, facts))
        if off is not None:
            majority, odd, tie = sides[1 - off], sides[off], False
    waiting = tuple(r for r in sorted(incident.ranks) if tie or r not in odd)
    return Finding(
        "different",
        () if tie else odd,
        seq=seq,
        waiting=waiting,
        explained=len(waiting),
        sides=tuple(sides),
        tie=tie,
        waiting_rank=majority[0],
        waiting_kind=kinds.get(majority[0]),
        own_kind=kinds.get(odd[0]) if odd else None,
        own_seq=seq,
    )


def _stack(side: Sequence[int], kinds: Mapping[int, CallKind], facts: Facts) -> Stack:
    for rank in side:
        kind, where = kinds.get(rank), facts.whereabouts.get(rank)
        if kind is not None and kind.stack:
            return kind.stack
        if where is not None:
            return where.stack
    return ()


def off_the_path(a: Stack, b: Stack) -> int | None:
    """Return which of two stacks (0 or 1) left the common path: it returned from the loop, or is in work for one rank alone."""
    known = off_the_step(a, b, own_knowledge())
    if known is not None:
        return known
    shared = shared_line(a, b)
    if shared is None:
        return None
    inner = [_below(stack, frame.name, frame.file) for stack, frame in zip((a, b), shared, strict=True)]
    helper = [any(SIDE_WORK.search(name) for name in names) for names in inner]
    if helper[0] != helper[1]:
        return 0 if helper[0] else 1
    for own, other in ((0, 1), (1, 0)):
        # The other is inside the function that loops, which this one has behind it.
        if (
            not inner[own]
            and shared[own].line > shared[other].line
            and any(_LOOP.search(name) for name in inner[other])
        ):
            return own
    return None


def _below(stack: Stack, name: str, file: str) -> list[str]:
    """Return the names of the user's functions that a shared function had called, innermost first."""
    names = []
    for frame in user_frames(stack):
        if (frame.name, frame.file) == (name, file):
            break
        names.append(frame.name)
    return names
