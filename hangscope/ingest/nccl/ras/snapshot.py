"""The event of a rank that NCCL's RAS or its Inspector lists, and what the readers of their JSON have in common.

RAS (`ncclras`, 2.24 on) counts the collectives that each rank *launched* on each communicator, five operations only and none of a
captured CUDA graph. One snapshot with different counts is normal.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from hangscope.ingest.lines.prefixes import quote
from hangscope.model.codec import is_number
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

#: Ranks that get an event each, per communicator and operation; the rest are counted in a last one.
MAX_LISTED = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclRas(Event, size_field="nranks"):
    """A rank that RAS lists, or what the Inspector saw complete.

    `what`: missing, dead, behind, ahead, initializing, error, status or completed. `comm_rank` is group-local, `count` the
    number of launches (completions), `most` the largest of the communicator, `ranks` how many ranks a line without numbers
    is about; `snapshot` is when, as printed, or which one of several in a file.
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

    @classmethod
    def at(cls, file: str, line: int, text: str, **fields: Any) -> NcclRas:
        """Return an event that quotes a text; its rank in the communicator is its rank in the group."""
        return cls(file, line, quote(text), group_rank=fields.get("comm_rank"), **fields)

    def least_sizes(self) -> Iterator[int]:
        """Yield the size of the communicator, and what a rank that is gone proves; without a process it is what 2.27 found in memory."""
        yield self.nranks or 0
        if self.what in ("missing", "dead") and self.comm_rank is not None and self.pid:
            yield self.comm_rank + 1


def comm_hash(text: str) -> str:
    """Return a communicator's hash as NCCL's INIT lines print it from 2.26 on: 0x and no leading zeros."""
    try:
        return f"0x{int(text, 16):x}"
    except ValueError:
        return text


def part(value: Any, name: str) -> dict[str, Any]:
    """Return an object within a JSON object; empty where there is none."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def text_of(value: Any) -> str | None:
    """Return a text cut for quoting, or None for anything else."""
    return quote(value, 255) if isinstance(value, str) else None


def whole_number(value: Any) -> int | None:
    """Return an int of at most 64 bits, or None for anything else, True and False included."""
    return value if is_number(value) else None
