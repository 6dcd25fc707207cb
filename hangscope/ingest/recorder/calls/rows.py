"""One entry of a recorder's dump in two parts: what it has in common with others, and its own numbers."""

from __future__ import annotations

from typing import Any, NamedTuple

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
