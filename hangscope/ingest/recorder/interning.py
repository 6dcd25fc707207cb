"""What the ranks of a job have in common, kept once: columns, call kinds with their stacks, and members of groups.

Ranks of one role make the same calls in the same order, so most of their columns are equal byte by byte; what remains
per rank is times. An `Interner` lives as long as one analysis.
"""

from __future__ import annotations

from array import array
from typing import Any

from hangscope.ingest.recorder import safe_pickle
from hangscope.ingest.recorder.members import Members, Runs

MAX_MEMBERS = 2**23  # of all groups of a job together: a few bytes can claim a quarter of a million each


class Interner:
    """Gives one object for equal content."""

    def __init__(self) -> None:
        self._listed = 0
        self._columns: dict[tuple[str, bytes], array[int]] = {}
        self._tables: dict[bytes, Any] = {}
        self._members: dict[Runs, Members] = {}

    def column(self, typecode: str, data: bytes) -> array[int]:
        """Return a column that must not be changed, as others share it."""
        found = self._columns.get((typecode, data))
        if found is None:
            found = self._columns[typecode, data] = array(typecode, data)
        return found

    def table(self, data: bytes) -> Any:
        """Return the plain value that was pickled to `data`; it must not be changed."""
        found = self._tables.get(data)
        if found is None:
            found = self._tables[data] = safe_pickle.load(data)
        return found

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
