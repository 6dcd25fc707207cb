"""What a call is compared by when programs are compared: from its exact line and sizes to the operation alone."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

import numpy as np

from hangscope.align.matching import match_keys, numbers
from hangscope.align.roles import group_kinds
from hangscope.knowledge.callsite import user_frame
from hangscope.model.incident import Incident

#: The levels: exact sizes and line; exact sizes; operation and group alone.
LEVELS = EXACT, SIZES, BARE = range(3)


class Tokens:
    """Numbers the calls of an incident at each level: equal numbers are equal calls on groups of one kind."""

    def __init__(self, incident: Incident) -> None:
        kinds = incident.kinds
        # Each group of a kind has its own root.
        keys = match_keys([replace(kind, root=None) for kind in kinds.alone])
        # What torch pickles (`all_gather_object`) is of another length each time.
        keys = [
            () if {*kind.input_dtypes} == {"Byte"} else key
            for kind, key in zip(kinds.alone, keys, strict=True)
        ]
        self.group_kinds = group_kinds(incident.groups)
        self._of_group = numbers(self.group_kinds)
        self._kinds = len(set(self.group_kinds))
        self.of_a_thread = np.array([kind.of_a_thread for kind in kinds.alone], bool)[kinds.plain]
        named = [(kind.op, kind.src, kind.dst) for kind in kinds.alone]
        levels: list[Iterable[Hashable]] = [
            zip(named, keys, (user_frame(kind.stack) for kind in kinds.alone), strict=True),
            zip(named, keys, strict=True),
            named,
        ]
        self._by_level = [numbers(level)[kinds.plain] for level in levels]

    def of(self, gids: np.ndarray, kinds: np.ndarray, level: int) -> np.ndarray:
        """Return the token of each call, given by its group and its kind."""
        return np.asarray(self._by_level[level][kinds] * self._kinds + self._of_group[gids])
