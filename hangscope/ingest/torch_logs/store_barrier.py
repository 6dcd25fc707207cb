"""The barrier in the store with which every group begins: who waits in it until the text ends.

    Waiting in store based barrier to initialize process group for rank: 2, key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)
    Rank 2: Completed store-based barrier for key:store_based_barrier_key:1 with 8 nodes.
    Timed out initializing process group in store based barrier on rank: 2, for key: store_based_barrier_key:1 (world_size=8, worker_count=7, timeout=0:30:00)

(torch/distributed/distributed_c10d.py, `_store_based_barrier`, 1.8 to 2.13; `num_workers_joined` since 2.0, "for 10 seconds" before
the rank since 2.6, where the level is DEBUG.) The first line comes every ten seconds and proves nothing once the second has come.
So does what the store's own server prints while it waits, where anything but such lines follows:

    [W1120 15:13:24.102 TCPStore.cpp:158] [c10d] waiting for workers. 3/4 workers joined.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.ingest.lines.forms import LineParser, integer
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_RANKS_KEPT = 20_000
_BARRIER = regex(
    r"(?P<what>Waiting in|Timed out initializing process group in) store based barrier .{0,80}?rank:? (?P<rank>\d{1,7}),"
    r" (?:for )?key: (?P<key>\S{1,300})"
)
_COMPLETED = regex(r"Rank (\d{1,7}): Completed store-based barrier for key:(\S{1,300})")
_WORKERS = regex(
    r"^(?:\[c10d\] )?waiting for (?:workers|clients)\. (\d{1,7})/(\d{1,7}) (?:workers|clients) joined"
)
_SERVER = (-1, "")  # its place among those who wait
_GOES_ON = regex(
    r"^(?!\W{0,3}$|.{0,80}(?:\^C|Traceback|Terminated|Error|srun: |slurmstepd: |scancel|cancel|Ctrl))"
)
_WORLD = regex(r"\bworld_size=(\d{1,7})")
_JOINED = regex(r"\b(?:worker_count|num_workers_joined)=(\d{1,7})")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreBarrier(Event, same_by=("world_size", "joined"), calm=True, size_field="world_size"):
    """The store based barrier at init: how many of how many joined. `waiting`: it had not timed out when the text ended."""

    world_size: int | None = None
    joined: int | None = None
    waiting: bool = False


class StoreBarrierParser(LineParser):
    """Reads each rank's last word on a barrier; of one that it passed it says nothing."""

    literals = (
        b"store based barrier",
        b"Completed store-based barrier",
        b"aiting for workers. ",
        b"aiting for clients. ",
    )

    def __init__(self) -> None:
        self._waits: dict[tuple[int, str], Event] = {}

    @property
    def wants_more(self) -> bool:
        """Whether the store's server waits, until its process prints something else."""
        return _SERVER in self._waits

    def feed(self, line: Line) -> Iterable[Event]:
        """Return a timeout; keep who waits until a later line tells how that ended."""
        if match := _COMPLETED.search(line.text):
            self._waits.pop((int(match[1]), match[2]), None)
            return ()
        if (counted := _WORKERS.match(line.text)) and int(counted[1]) < int(counted[2]):
            self._waits[_SERVER] = line.event(
                StoreBarrier, world_size=int(counted[2]), joined=int(counted[1]), waiting=True
            )
            return ()
        if _SERVER in self._waits and line.source is None and _GOES_ON.search(line.text):
            del self._waits[_SERVER]
        match = _BARRIER.search(line.text)
        if match is None:
            return ()
        place = (int(match["rank"]), match["key"])
        waiting = match["what"].startswith("Waiting")
        world, joined = _WORLD.search(line.text), _JOINED.search(line.text)
        event = line.event(
            StoreBarrier,
            place[0],
            world_size=integer(world[1]) if world else None,
            joined=integer(joined[1]) if joined else None,
            waiting=waiting,
        )
        self._waits.pop(place, None)
        if not waiting:
            return [event]
        if len(self._waits) < _RANKS_KEPT:
            self._waits[place] = event
        return ()

    def close(self) -> Iterable[Event]:
        """Return who still waits."""
        waits, self._waits = self._waits, {}
        return list(waits.values())
