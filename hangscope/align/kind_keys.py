"""Numbers for kinds of call, equal where two kinds match, or match and come from one line."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hangscope.align.matching import match_keys
from hangscope.incident import CallKind, Kinds, Stack


def hard_keys(kinds: Kinds) -> np.ndarray:
    """Return for each kind the number of its match key (int32): equal numbers match."""
    return _hard(kinds)[kinds.plain]


def site_keys(kinds: Kinds) -> np.ndarray:
    """Return for each kind the number of its match key, of bytes without their number, together with its call site (int32).

    What torch pickles (`all_gather_object`) is of another length each time, and the same call.
    """
    index: dict[object, int] = {}
    hard = (
        kind.op if {*kind.input_dtypes, *kind.output_dtypes} == {"Byte"} else key
        for kind, key in zip(kinds.alone, _hard(kinds).tolist(), strict=True)
    )
    both = zip(hard, _numbers_of_stacks(kinds.alone), strict=True)
    return np.array([index.setdefault(pair, len(index)) for pair in both], dtype=np.int32)[kinds.plain]


def _hard(kinds: Kinds) -> np.ndarray:
    index: dict[object, int] = {}
    keys = match_keys(kinds.alone)
    return np.array([index.setdefault(key, len(index)) for key in keys], dtype=np.int32)


def _numbers_of_stacks(kinds: Sequence[CallKind]) -> list[int]:
    """Return for each kind the number of its stack, equal for equal stacks; each object is looked at once."""
    by_content: dict[Stack, int] = {}
    by_object: dict[int, int] = {}
    numbers = []
    for kind in kinds:
        number = by_object.get(id(kind.stack))
        if number is None:
            number = by_object[id(kind.stack)] = by_content.setdefault(kind.stack, len(by_content))
        numbers.append(number)
    return numbers
