"""What a call is compared by when programs are compared: from its exact line and sizes to the operation alone."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

import numpy as np

from hangscope.align.matching import match_keys, numbers, numel
from hangscope.align.roles import group_kinds
from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import CallKind, Incident

#: The levels: exact sizes and line; exact sizes; sizes as powers of two; operation and group alone.
LEVELS = EXACT, SIZES, ROUNDED, BARE = range(4)


class Tokens:
    """Numbers the calls of an incident at each level: equal numbers are equal calls on groups of one kind."""

    def __init__(self, incident: Incident) -> None:
        kinds = incident.kinds
        # Each group of a kind has its own root.
        keys = match_keys([replace(kind, root=None) for kind in kinds.alone])
        self.group_kinds = group_kinds(incident.groups)
        self._of_group = numbers(self.group_kinds)
        self._kinds = len(set(self.group_kinds))
        self.of_a_thread = np.array([kind.of_a_thread for kind in kinds.alone], bool)[kinds.plain]
        # What torch pickles (`all_gather_object`) is of another length each time.
        exact = [
            (_named(kind), None if _of_bytes(kind) else key)
            for kind, key in zip(kinds.alone, keys, strict=True)
        ]
        levels: list[list[Hashable]] = [
            [(token, user_frame(kind.stack)) for token, kind in zip(exact, kinds.alone, strict=True)],
            [*exact],
            [(_named(kind), _rounded(kind)) for kind in kinds.alone],
            [_named(kind) for kind in kinds.alone],
        ]
        self._by_level = [numbers(level)[kinds.plain] for level in levels]

    def of(self, gids: np.ndarray, kinds: np.ndarray, level: int) -> np.ndarray:
        """Return the token of each call, given by its group and its kind."""
        return np.asarray(self._by_level[level][kinds] * self._kinds + self._of_group[gids])


def _named(kind: CallKind) -> tuple[object, ...]:
    return (kind.op, kind.src, kind.dst)


def _of_bytes(kind: CallKind) -> bool:
    return {*kind.input_dtypes, *kind.output_dtypes} == {"Byte"}


def _rounded(kind: CallKind) -> Hashable:
    """Return the sizes that members must agree on as powers of two, with their types."""
    if _of_bytes(kind) or kind.op == "barrier" or kind.op.startswith("all_to_all"):
        return None
    scatter = kind.op == "scatter"
    sizes, types = (
        (kind.output_sizes, kind.output_dtypes) if scatter else (kind.input_sizes, kind.input_dtypes)
    )
    return (tuple(n.bit_length() for n in numel(sizes)), types)
