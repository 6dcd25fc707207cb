"""What one call is compared by when programs are compared: from its exact line and sizes to the operation alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import replace

import numpy as np

from hangscope.align.matching import match_keys, numel
from hangscope.align.program import Program
from hangscope.align.roles import GroupKind, kind_of_group
from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import CallKind, Incident

LEVELS = 4  #: exact sizes and line; exact sizes; sizes as powers of two; operation and group alone


class Tokens:
    """Numbers the calls of an incident at each level: equal numbers are equal calls on groups of one kind."""

    def __init__(self, incident: Incident) -> None:
        self._incident = incident
        kinds = incident.kinds
        keys = match_keys(
            [replace(k, root=None) for k in kinds.alone]
        )  # each group of a kind has its own root
        self._kinds: dict[GroupKind, int] = {}
        self._of_group = [self._kinds.setdefault(kind_of_group(g), len(self._kinds)) for g in incident.groups]
        levels: list[Callable[[int], Hashable]] = [
            lambda i: (exact(i), user_frame(kinds.alone[i].stack)),
            lambda i: exact(i),
            lambda i: (_named(kinds.alone[i]), _rounded(kinds.alone[i])),
            lambda i: _named(kinds.alone[i]),
        ]

        def exact(i: int) -> Hashable:
            kind = kinds.alone[i]
            # What torch pickles (`all_gather_object`) is of another length each time.
            return (_named(kind), None if _of_bytes(kind) else keys[i])

        self._by_level = [self._numbers(level) for level in levels]

    def _numbers(self, token: Callable[[int], Hashable]) -> np.ndarray:
        kinds, index = self._incident.kinds, dict[Hashable, int]()
        alone = [index.setdefault(token(i), len(index)) for i in range(len(kinds.alone))]
        return np.array(alone, np.int64)[kinds.plain]

    def of(self, program: Program, level: int) -> np.ndarray:
        """Return the token of each call of a program."""
        if not len(program.gid):
            return np.empty(0, np.int64)
        groups = np.array(self._of_group, np.int64)[program.gid]
        return np.asarray(self._by_level[level][program.kind] * len(self._kinds) + groups)


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
