"""One entry of a recorder's dump in two parts: what it has in common with other entries, and its own numbers."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from hangscope.ingest.recorder.calls.own_sizes import may_differ
from hangscope.ingest.recorder.values import as_state, as_text, user_op
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_COALESCED_END = regex(r"(?:^|[_:])coalesced$", re.IGNORECASE)


@dataclass(slots=True, eq=False)
class Call:
    """What several entries of a dump have in common: all but their numbers, times and, if `own_sizes` is True, their sizes.

    `entry` is the first of these entries. `backend` and `op` are the two parts of its profiling name (`nccl:all_gather`,
    `nccl:send 0->1`, `nccl:coalesced`), and `ends_batch` is True for the last form. `group` is the index of the recording's
    local group, `state` an `incident.State`, `kind` the index of the recording's kind, or -1 until it is needed.
    """

    entry: dict[str, Any]
    local_id: str
    group: int
    backend: str
    op: str
    is_p2p: bool
    ends_batch: bool
    own_sizes: bool
    state: int
    kind: int = -1

    @classmethod
    def of(cls, entry: dict[str, Any], local_id: str, group: int) -> Call:
        """Return the call of an entry whose profiling name is a string."""
        name = entry["profiling_name"]
        backend, _, op = as_text(name).rpartition(":")
        is_p2p = "->" in name or "<-" in name or bool(entry.get("is_p2p"))
        ends_batch = _COALESCED_END.search(name) is not None
        own_sizes = not is_p2p and may_differ(user_op(op))
        state = int(as_state(entry.get("state")))
        return cls(entry, local_id, group, backend, op, is_p2p, ends_batch, own_sizes, state)


class Row(NamedTuple):
    """One entry. `own` is the index of its own sizes among those of the dump, -1 if it has none."""

    call: Call
    order: int
    seq: int
    p2p_seq: int
    created: int
    own: int = -1

    def number(self, is_p2p: bool) -> int:
        """Return its number among its group's point-to-point calls, or among its collectives."""
        return self.p2p_seq if is_p2p else self.seq
