"""One answer of NCCL's RAS: what the readers of its text and its JSON both make."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

#: Ranks behind that get an event each, per communicator and operation; the rest are counted in a last one.
MAX_LISTED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRas(Event, size_field="nranks"):
    """A rank that RAS lists, or what the Inspector saw complete.

    `what`: missing, dead, behind, ahead, initializing, error, status or completed. `comm_rank` is group-local, `count` the
    number of launches (completions), `most` the largest of the communicator, `ranks` how many ranks a line without numbers
    speaks of; `snapshot` says when, as printed, or which one of several in a file.
    """

    what: str
    comm: str | None = None
    comm_rank: int | None = None
    nranks: int | None = None
    count: int | None = None
    most: int | None = None
    ranks: int | None = None
    op: str | None = None
    peer_host: str | None = None
    status: str | None = None
    result: int | str | None = None
    snapshot: str | None = None

    def least_sizes(self) -> Iterator[int]:
        """Yield the size of the communicator, and what a rank that is gone proves; without a process it is what 2.27 found in memory."""
        yield self.nranks or 0
        if self.what in ("missing", "dead") and self.comm_rank is not None and self.pid:
            yield self.comm_rank + 1


@dataclass(slots=True)
class RasSnapshot:
    """One answer of RAS; ranks are group-local and `timestamp` is as printed.

    `garbled` counts lines of ranks that no communicator can have.
    """

    file: str
    line: int
    version: str = ""
    timestamp: str | None = None
    events: list[NcclRas] = field(default_factory=list)
    garbled: int = 0


def comm_hash(text: str) -> str:
    """Return a communicator's hash as NCCL's INIT lines print it from 2.26 on: 0x and no leading zeros."""
    try:
        return f"0x{int(text, 16):x}"
    except ValueError:
        return text
