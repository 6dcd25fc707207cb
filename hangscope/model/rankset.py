"""Sets of ranks as people write them: `0-2,4-7`, and from eight ranks of one stride on `5-16381:8`, as Slurm does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hangscope.model.regex import regex

MIN_STRIDED = 8
_SPAN = regex(r"(\d{1,9})(?:-(\d{1,9})(?::(\d{1,9}))?)?")


def compress(ranks: Iterable[int]) -> str:
    """Return ranks as ascending ranges, `0-2,4-7,16-128:16`; the empty set is `none`."""
    ordered = sorted(set(ranks))
    spans = []
    start = 0
    while start < len(ordered):
        first, step, end = ordered[start], 1, start + 1
        if end < len(ordered):
            step = ordered[end] - first
            while end < len(ordered) and ordered[end] - ordered[end - 1] == step:
                end += 1
        if step > 1 and end - start < MIN_STRIDED:
            step, end = 1, start + 1
        last = ordered[end - 1]
        spans.append(f"{first}" if first == last else f"{first}-{last}" + (f":{step}" if step > 1 else ""))
        start = end
    return ",".join(spans) or "none"


def spans(text: str) -> Iterator[range]:
    """Yield the ranges of `0-2,4-7,16-128:16`. Raises ValueError for a part of another form."""
    for part in text.split(","):
        span = _SPAN.fullmatch(part.strip())
        if span is None:
            raise ValueError(f"{part.strip()[:40]!r} is no rank and no range of ranks")
        first, last, step = span.groups()
        yield range(int(first), int(last or first) + 1, max(1, int(step or 1)))


def in_words(compressed: str) -> str:
    """Return compressed ranks for a sentence: `0-1` as `0 and 1`, `0-2,5,7` as `0-2, 5 and 7`."""
    parts: list[str] = []
    for part in compressed.split(","):
        first, _, last = part.partition("-")
        pair = last.isdigit() and int(last) == int(first) + 1
        parts += [first, last] if pair else [part]
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def ranks_phrase(ranks: Iterable[int]) -> str:
    """Return `rank 3` or `ranks 0-2, 5 and 7`, for a sentence."""
    distinct = set(ranks)
    return f"rank{'s' if len(distinct) != 1 else ''} {in_words(compress(distinct))}"


def agree(ranks: Iterable[int], one: str, several: str) -> str:
    """Return the word that agrees with so many ranks: `agree([3], "was", "were")` is `was`."""
    return one if len(set(ranks)) == 1 else several


def counted(number: int, noun: str) -> str:
    """Return `1 rank`, `1,024 ranks`, `3 classes`."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}{'es' if noun.endswith('s') else 's'}"
