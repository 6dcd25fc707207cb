"""The barrier in the store with which every group begins: who waits in it until the text ends.

    Waiting in store based barrier to initialize process group for rank: 2, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)
    Rank 2: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.
    Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)

(torch/distributed/distributed_c10d.py, `_store_based_barrier`, 1.8 to 2.13; `num_workers_joined` since 2.0, "for 10 seconds" before
the rank since 2.6, where the level is DEBUG.) The first line comes every ten seconds and proves nothing once the second has come.
The same holds for what the store's own server prints while it waits, where anything but such lines follows:

    [W1120 15:13:24.102 TCPStore.cpp:158] [c10d] waiting for workers. 3/4 workers joined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

from hangscope.ingest.lines.forms import FormParser, any_of, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_RANKS_KEPT = 20_000
_OF_RANK = r" store based barrier .{0,80}?rank:? (?P<group_rank>\d{1,7}), (?:for )?key: "
_KEY = regex(r"\bkey: ?(\S{1,300})")
_COMPLETED = regex(r"Rank (\d{1,7}): Completed store-based barrier for ")
_SERVER = (None, "")  # its place among those who wait
_GOES_ON = regex(
    r"^(?!\W{0,3}$|.{0,80}(?:\^C|Traceback|Terminated|Error|srun: |slurmstepd: |scancel|cancel|Ctrl))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBarrier(Event, same_by=("world_size", "joined"), calm=True, size_field="world_size"):
    """The store based barrier at init: how many of how many joined. `waiting`: it had not timed out when the text ended."""

    world_size: int | None = None
    joined: int | None = None
    waiting: bool = False
    forms = (
        says("Timed out initializing process group in" + _OF_RANK),
        says("Waiting in" + _OF_RANK, waiting=True),
        *any_of(
            ("aiting for workers. ", "aiting for clients. "),
            r"^(?:\[c10d\] )?waiting for \w+\. (?P<joined>\d{1,7})/(?P<world_size>\d{1,7}) \w+ joined",
            waiting=True,
        ),
    )
    also = (
        regex(r"\bworld_size=(?P<world_size>\d{1,7})"),
        regex(r"\b(?:worker_count|num_workers_joined)=(?P<joined>\d{1,7})"),
    )


class StoreBarrierParser(FormParser):
    """Keeps the last wait of each rank in a barrier that it did not pass."""

    def __init__(self) -> None:
        super().__init__(sys.modules[__name__])
        self.literals = (*self.literals, b"Completed store-based barrier")
        self._waits: dict[tuple[int | None, str], Event] = {}

    @property
    def wants_more(self) -> bool:
        """Whether the store's server waits, until its process prints something else."""
        return _SERVER in self._waits

    def feed(self, line: Line) -> list[Event]:
        """Return a timeout; keep who waits until a later line shows how that ended."""
        key, completed = _KEY.search(line.text), _COMPLETED.search(line.text)
        if completed and key:
            self._waits.pop((int(completed[1]), key[1]), None)
        events = [event for event in super().feed(line) if isinstance(event, StoreBarrier)]
        if not events and line.source is None and _GOES_ON.search(line.text):
            self._waits.pop(_SERVER, None)
        for event in events:
            place = (event.group_rank, key[1]) if key else _SERVER
            self._waits.pop(place, None)
            complete = event.joined is not None and event.joined == event.world_size
            if event.waiting and not (key is None and complete) and len(self._waits) < _RANKS_KEPT:
                self._waits[place] = event
        return [event for event in events if not event.waiting]

    def close(self) -> Iterable[Event]:
        """Return who still waits."""
        waits, self._waits = self._waits, {}
        return list(waits.values())
