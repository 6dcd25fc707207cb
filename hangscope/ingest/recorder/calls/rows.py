"""One entry of a recorder's dump in two parts: what it has in common with others, and its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from hangscope.ingest.recorder.values import as_key
from hangscope.model.dataclass import dataclass


@dataclass(slots=True, eq=False)
class Name:
    """What a profiling name says: `nccl:all_gather`, `nccl:send 0->1`, `nccl:coalesced`.

    `sizes_differ`: members may legally call it with other sizes.
    """

    backend: str
    op: str
    is_p2p: bool
    ends_batch: bool
    sizes_differ: bool


@dataclass(slots=True, eq=False)
class Call:
    """What several entries of a dump have in common: all but their numbers, times and, where `own` holds, their sizes.

    `entry` is the first of them as it was loaded, but for its `frames`; `group` the index of the recording's local group, `state` an `incident.State`, `kind` the index of the
    recording's kind (-1: not asked for yet).
    """

    entry: dict[str, Any]
    frames: Any
    name: Name
    is_p2p: bool
    local_id: str
    group: int
    state: int
    kind: int = -1

    @property
    def own(self) -> bool:
        """Return whether each entry has sizes of its own."""
        return self.name.sizes_differ and not self.is_p2p


class Row(NamedTuple):
    """One entry: its call and its numbers. `own`: the number of its own sizes among those of the dump, -1 for none."""

    call: Call
    order: int
    seq: int
    p2p_seq: int
    created: int
    own: int = -1

    def number(self, is_p2p: bool) -> int:
        """Return its number among its group's point-to-point calls, or among its collectives."""
        return self.p2p_seq if is_p2p else self.seq


EXPECTED = 4  # calls that are compared as the next one
_PARTS = (
    "profiling_name", "frames", "state", "pg_id", "process_group", "is_p2p", "retired", "input_dtypes", "output_dtypes",
)  # fmt: skip

_Known: TypeAlias = tuple[tuple[Any, ...], "tuple[Any, Any] | None", Call]


class SameCalls:
    """Finds the call of one entry after another.

    Training repeats itself: what followed a call before follows it again, so those are compared first, which takes a
    fraction of the time of looking the call up.
    """

    def __init__(self, call: Callable[[dict[str, Any]], Call]) -> None:
        """`call` makes the call of an entry that is the first of it."""
        self._call = call
        self._calls: dict[Any, Call] = {}
        self._last: Call | None = None
        self._followers: dict[tuple[int, int], list[_Known]] = {}  # by the identity of two calls in a row
        self._expected: list[_Known] = []

    def of(self, entry: dict[str, Any]) -> Call:
        """Return the call of the entry that comes next."""
        get = entry.get
        parts, sizes = tuple(map(get, _PARTS)), (get("input_sizes"), get("output_sizes"))
        found = None
        for known, known_sizes, call in self._expected:
            if known == parts and (known_sizes is None or known_sizes == sizes):
                found = call
                break
        if found is None:
            found = self._look_up(entry, parts, sizes)
            self._expected.insert(0, (parts, None if found.own else sizes, found))
            del self._expected[EXPECTED:]
        self._expected = self._followers.setdefault((id(self._last), id(found)), [])
        self._last = found
        return found

    def _look_up(self, entry: dict[str, Any], parts: tuple[Any, ...], sizes: tuple[Any, Any]) -> Call:
        """Return the call that an equal entry before had, a new one where there was none."""
        call = self._call(entry)
        frames = parts[1]
        ids = tuple(map(id, frames)) if isinstance(frames, list) else ()
        key = ids, as_key((parts[0], *parts[2:], () if call.own else sizes))
        return self._calls.setdefault(key, call)
