"""Where any of many byte strings occur in a block, at a speed that does not depend on how many they are.

Every literal of seven bytes or more holds, whatever its offset, one complete group of four bytes that starts
at a multiple of four, and one of eleven bytes two such groups. So only every fourth position is hashed and searched for (three vector
operations, about 1 GB/s on one core), and the few positions that remain are compared byte by byte. Shorter literals cost one
`bytes.find` pass each, unless their rarest byte is nowhere in the block.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

_GRAM = 4
_WINDOW = 2 * _GRAM - 1
_LONG = _WINDOW + _GRAM  # bytes that hold two groups
_SHIFT = np.uint32(12)
#: Knuth's multiplicative hash; the top 20 bits index a table that fits the cache
_FACTOR = np.uint32(2654435761)
_COMMON = b" etaoinsrhldcumfpgwybv0123456789.,:=_-/[]"  # most frequent first: such bytes make a window match too often


class LiteralFinder:
    """Finds literals in blocks. `literals` are pairs of a byte string and the bit mask of those who asked for it."""

    def __init__(self, literals: Sequence[tuple[bytes, int]]) -> None:
        merged: dict[bytes, int] = {}
        for literal, mask in literals:
            merged[literal] = merged.get(literal, 0) | mask
        self._short: list[tuple[bytes, bytes, int]] = []
        self._grams: dict[int, list[tuple[int, bytes, int]]] = {}
        keys: dict[str, set[int]] = {"alone": set(), "first": set(), "second": set()}
        for literal, mask in merged.items():
            if len(literal) < _WINDOW:
                at = _rarest_window(literal, 1)
                self._short.append((literal[at : at + 1], literal, mask))
                continue
            at = _rarest_window(literal, _LONG if len(literal) >= _LONG else _WINDOW)
            for offset in range(at, at + _GRAM):
                gram, second = (
                    int.from_bytes(literal[n : n + _GRAM], "little") for n in (offset, offset + _GRAM)
                )
                self._grams.setdefault(gram, []).append((offset, literal, mask))
                keys["alone" if len(literal) < _LONG else "first"].add(gram)
                keys["second"] |= {second} if len(literal) >= _LONG else set()
        #: by hash: 1 for the first of two groups, 2 for a group that is enough
        self._table = _marked(keys["first"], 1) | _marked(keys["alone"], 2)
        self._second = _marked(keys["second"], 1)

    def find(self, block: bytes) -> list[tuple[int, int]]:
        """Return (position, mask) of every occurrence by ascending position. `block` must end in three filler bytes."""
        words: Any = np.frombuffer(block, dtype="<u4", count=len(block) // _GRAM)
        hashed = words * _FACTOR
        np.right_shift(hashed, _SHIFT, out=hashed)
        # numpy looks up by its own index type twice as fast as by another
        found_in = self._table[hashed.astype(np.intp)]
        candidates = np.flatnonzero(found_in)
        after = self._second[hashed.take(candidates + 1, mode="clip")]
        candidates = candidates[found_in[candidates] + after > 1]
        found = self._compared(block, candidates, words)
        for rarest, literal, mask in self._short:
            at = block.find(literal) if rarest in block else -1
            while at >= 0:
                found.append((at, mask))
                at = block.find(literal, at + 1)
        found.sort()
        return found

    def _compared(self, block: bytes, candidates: Any, words: Any) -> list[tuple[int, int]]:
        """Compare all places of one group of bytes at once: ordinary text may hold a group on every line."""
        data: Any = np.frombuffer(block, dtype=np.uint8)
        at = words[candidates]
        order = np.argsort(at, kind="stable")
        groups, first = np.unique(at[order], return_index=True)
        found: list[tuple[int, int]] = []
        for word, places in zip(groups.tolist(), np.split(candidates[order], first[1:]), strict=False):
            for offset, literal, mask in self._grams.get(word, ()):
                starts = places * _GRAM - offset
                starts = starts[(starts >= 0) & (starts <= len(block) - len(literal))]
                for k in (*range(len(literal) - 1, offset + _GRAM - 1, -1), *range(offset)):
                    if not len(starts):
                        break
                    starts = starts[data[starts + k] == literal[k]]
                found.extend((start, mask) for start in starts.tolist())
        return found


@lru_cache(maxsize=4)
def finder_of(literals: tuple[tuple[bytes, int], ...]) -> LiteralFinder:
    """Return the finder of these literals: made once for all logs of a process, which takes longer than reading a small one."""
    return LiteralFinder(literals)


def _marked(keys: Iterable[int], mark: int) -> Any:
    """Return a table with a mark at the hash of each key."""
    table = np.zeros(1 << (32 - int(_SHIFT)), np.uint8)
    table[(np.array(sorted(keys), dtype=np.uint32) * _FACTOR) >> _SHIFT] = mark
    return table


def _rarest_window(literal: bytes, length: int) -> int:
    """Return where so many bytes start that ordinary log text holds least often."""
    weight = [len(_COMMON) - _COMMON.find(byte) if byte in _COMMON else 0 for byte in literal]
    return min(range(len(literal) - length + 1), key=lambda at: sum(weight[at : at + length]))
