"""Sets of ranks as people write them: `0-2,4-7`, and from eight ranks of one stride on `5-16381:8`, as Slurm does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MIN_STRIDED = 8


def compress(ranks: Iterable[int]) -> str:
    """Return ranks as ascending ranges, `0-2,4-7,16-128:16`; the empty set is `none`."""
    ordered = sorted(set(ranks))
    if not ordered:
        return "none"
    spans = []
    start = 0
    while start < len(ordered):
        end, step = _run(ordered, start)
        if step > 1 and end - start < MIN_STRIDED:
            end, step = start + 1, 1
        first, last = ordered[start], ordered[end - 1]
        spans.append(
            str(first) if first == last else f"{first}-{last}" if step == 1 else f"{first}-{last}:{step}"
        )
        start = end
    return ",".join(spans)


def _run(ordered: Sequence[int], start: int) -> tuple[int, int]:
    """Return where the ranks from `start` on stop having one distance, and that distance."""
    if start + 1 == len(ordered):
        return start + 1, 1
    step, end = ordered[start + 1] - ordered[start], start + 2
    while end < len(ordered) and ordered[end] - ordered[end - 1] == step:
        end += 1
    return end, step


def ranks_phrase(ranks: Iterable[int], *, noun: str = "rank") -> str:
    """Return `rank 3` or `ranks 0-2,5`, for a sentence."""
    ordered = sorted(set(ranks))
    return f"{noun} {ordered[0]}" if len(ordered) == 1 else f"{noun}s {compress(ordered)}"
