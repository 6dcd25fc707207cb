"""What the ranks of a job have in common, kept once: the members of groups, columns, and call kinds with their stacks.

Every dump of a job lists its groups' members in full, so at N ranks the world alone is written N times. Each list is
parsed once, crosses over as arithmetic runs (`0, 8, 16, ...` is one), and is one object per group on the other side. Ranks of one
role make the same calls in the same order, so most of their columns are equal byte by byte; what remains per rank is times.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from functools import cache, cached_property, lru_cache
from typing import Any

from hangscope.ingest.recorder import safe_pickle
from hangscope.model.regex import regex

_RANK = regex(r"-?\d{1,9}")

#: Ranks are numbered below this: more than any job had, and few enough that a forged number costs no memory.
MAX_RANKS = 2**18
ALIKE = 4  # texts with the same ends that are kept

#: ((first, count, step), ...)
Runs = tuple[tuple[int, int, int], ...]


class Members(tuple[int, ...]):
    """Global ranks in group order: a tuple whose hash, set and runs are computed once. Equal to a plain tuple of them."""

    @cached_property
    def _hash(self) -> int:
        return tuple.__hash__(self)

    @cached_property
    def as_set(self) -> frozenset[int]:
        """Return the ranks as a set."""
        return frozenset(self)

    @cached_property
    def runs(self) -> Runs:
        """Return the ranks as arithmetic runs, for `of_runs`."""
        runs: list[tuple[int, int, int]] = []
        position, total = 0, len(self)
        while position < total:
            first, end = self[position], position + 1
            step = self[end] - first if end < total else 1
            while end < total and self[end] == first + (end - position) * step:
                end += 1
            runs.append((first, end - position, step))
            position = end
        return tuple(runs)

    @classmethod
    def of(cls, ranks: tuple[int, ...]) -> Members:
        """Return ranks as members: themselves where they are already, with what is known of them."""
        return ranks if isinstance(ranks, Members) else cls(ranks)

    @classmethod
    def of_runs(cls, runs: Runs) -> Members:
        """Return the ranks that `runs` describes. Raises ValueError where they are more than any job has."""
        if sum(count for _, count, _ in runs) > MAX_RANKS:
            raise ValueError("more members than a job has ranks")
        return cls(first + i * step for first, count, step in runs for i in range(count))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __contains__(self, rank: object) -> bool:
        return rank in self.as_set


@lru_cache(maxsize=64)
def _parsed(size: int, first: str, last: str) -> list[tuple[str, Members | None]]:
    return []


def parse_members(text: str) -> Members | None:
    """Return the ranks of `[0, 1, 2]` as torch prints them, or None where it lists none (gloo's "not recorded").

    Every rank lists the members of the world anew. A text that was seen is found by its ends, and then compared, which
    takes a tenth of the time of hashing it.
    """
    alike = _parsed(len(text), text[:40], text[-40:])
    for known, members in alike:
        if known == text:
            return members
    members = known_members(map(int, _RANK.findall(text)))
    if len(alike) < ALIKE:
        alike.append((text, members))
    return members


def known_members(numbers: Iterable[int]) -> Members | None:
    """Return the valid ranks among `numbers`, or None where there are none."""
    return Members(n for n in numbers if 0 <= n < MAX_RANKS) or None


MAX_MEMBERS = 2**23  # of all groups of a job together: a few bytes can claim a quarter of a million each


class Interner:
    """Gives one object for equal content."""

    def __init__(self) -> None:
        self._listed = 0
        self._members: dict[Runs, Members] = {}
        #: a column of this typecode, and the plain value that was pickled; others share them, so they must not be changed
        self.column: Callable[[str, bytes], array[int]] = cache(array)
        self.table: Callable[[bytes], Any] = cache(safe_pickle.load)

    def members(self, runs: Runs) -> Members | None:
        """Return the members that `runs` describes; None once all groups together have more than any job's."""
        found = self._members.get(runs)
        if found is None:
            count = sum(count for _, count, _ in runs)
            if self._listed + count > MAX_MEMBERS:
                return None
            self._listed += count
            found = self._members[runs] = Members.of_runs(runs)
        return found
