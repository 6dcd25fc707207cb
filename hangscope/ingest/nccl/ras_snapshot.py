"""One answer of NCCL's RAS: what the readers of its text and its JSON both make."""

from __future__ import annotations

from dataclasses import dataclass, field

from hangscope.incident import Event

#: Ranks behind that get an event each, per communicator and operation; the rest are counted in a last one.
MAX_LISTED = 256


@dataclass(slots=True)
class RasSnapshot:
    """One answer of RAS; ranks are group-local and `timestamp` is as printed.

    `counts` holds (communicator, operation, rank, (count,)), or, for counts that are not told by rank,
    (communicator, operation, None, (number of ranks, count)).
    """

    file: str
    line: int
    version: str = ""
    timestamp: str | None = None
    counts: set[tuple[str, str, int | None, tuple[int, ...]]] = field(default_factory=set)
    events: list[Event] = field(default_factory=list)


def comm_hash(text: str) -> str:
    """Return a communicator's hash as NCCL's INIT lines print it from 2.26 on: 0x and no leading zeros."""
    try:
        return f"0x{int(text, 16):x}"
    except ValueError:
        return text
