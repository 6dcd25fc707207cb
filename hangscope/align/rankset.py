"""Sets of ranks as people write them: `0-2,4-7`."""

from __future__ import annotations

from collections.abc import Iterable


def compress(ranks: Iterable[int]) -> str:
    """Return ranks as ascending ranges, `0-2,4-7`; the empty set is `none`."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "none"
    spans: list[list[int]] = []
    for rank in ordered:
        if spans and rank == spans[-1][1] + 1:
            spans[-1][1] = rank
        else:
            spans.append([rank, rank])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)


def ranks_phrase(ranks: Iterable[int], *, noun: str = "rank") -> str:
    """Return `rank 3` or `ranks 0-2,5`, for a sentence."""
    ordered = sorted(set(ranks))
    return f"{noun} {ordered[0]}" if len(ordered) == 1 else f"{noun}s {compress(ordered)}"
