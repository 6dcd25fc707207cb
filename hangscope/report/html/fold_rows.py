"""One row of the folded rank map as the page lists it: shares of states as a bar and in words, and when the stall reached it."""

from __future__ import annotations

from hangscope.report.schema.pictures import FoldRow
from hangscope.report.words import ROLE_WORDS, ROLES, duration

_WIDTH = 160


def bar(row: FoldRow) -> list[tuple[str, float, float]]:
    """Return the parts of the bar: the role, where it begins and its width in pixels."""
    parts, x = [], 0.0
    for role, number in zip(ROLES, row.states, strict=False):
        if number:
            width = round(_WIDTH * number / max(1, row.count), 1)
            parts.append((role, round(x, 1), width))
            x += width
    return parts


def states(row: FoldRow) -> str:
    """Return how many ranks are in each state."""
    words = {**ROLE_WORDS, "waiting": "waiting"}
    return ", ".join(f"{n:,} {words[role]}" for role, n in zip(ROLES, row.states, strict=False) if n)


def stalled(row: FoldRow) -> str:
    """Return when the ranks of a row stalled, after the first rank of the job; empty where that is not known."""
    ends = dict.fromkeys(_after(ms) for ms in (row.first_ms, row.last_ms) if ms is not None)
    return " to ".join(ends)


def _after(ms: float) -> str:
    return "first" if ms <= 0 else f"+{duration(ms / 1e3)}"
