"""Sizes that are a call's own: members of an all_to_all may send as much as they like, so sizes are no part of what it is.

A job of experts makes thousands of such calls on every rank, no two alike. They stand beside the calls in a table that is
loaded only where somebody asks for the sizes of one.
"""

from __future__ import annotations

import pickle
from array import array
from typing import Any, TypeAlias

from hangscope.ingest.recorder import safe_pickle

#: shapes of a call's inputs and of its outputs
Both: TypeAlias = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]


def may_differ(op: str) -> bool:
    """Return whether members of a collective may legally call it with other sizes; op is the name that users know."""
    return op.startswith("all_to_all")


class OwnSizes:
    """The sizes of one recording's calls whose kind has none. `picks`: for each such call, in order, an index into `table`."""

    def __init__(self, picks: array[int], table: list[Both] | None = None, data: bytes = b"") -> None:
        self.picks = picks
        self._table, self._data = table, data

    @property
    def table(self) -> list[Both]:
        """Return the different sizes."""
        if self._table is None:
            self._table = safe_pickle.load(self._data)
        return self._table

    def to_wire(self) -> tuple[bytes, bytes]:
        """Return the plain-builtins form."""
        return self.picks.tobytes(), self._data or pickle.dumps(self._table, protocol=5)

    @classmethod
    def from_wire(cls, wire: Any) -> OwnSizes:
        """Return what `to_wire` wrote; the table is loaded when it is asked for."""
        picks, data = wire
        return cls(array("i", picks), None, data)
