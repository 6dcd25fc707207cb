"""Which rank processes are, as they say it themselves before a group forms, and as DeepSpeed's launcher says it when it starts them.

    Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/4
    | distributed init (rank 3): env://
    2026-01-14 05:02:11 | INFO | fairseq.distributed.utils | initialized host gpu07 as rank 3
    [2026-01-14 05:02:11,440] [INFO] [launch.py:164:main] nnodes=2, num_local_procs=4, node_rank=1
    [2026-01-14 05:02:11,440] [INFO] [launch.py:175:main] dist_world_size=8
    [2026-01-14 05:02:11,441] [INFO] [launch.py:256:main] process 5201 spawned with command: ['python', '-u', 'sft.py', '--local_rank=0']

(lightning/fabric/utilities/distributed.py; the example scripts of torchvision and what was made of them; fairseq;
deepspeed/launcher/launch.py.) DeepSpeed counts ranks node by node, so a local rank is a global one where there is one node, or
where all nodes run equally many. What it prints when a process fails names the last one that it spawned, whichever failed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hangscope.ingest.lines.forms import LineParser, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _announced(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    rank, *size = (int(number) for number in match.groups() if number)
    fits = rank < MAX_RANKS and line.rank in (None, rank) and all(rank < n <= MAX_RANKS for n in size)
    return {"rank": rank} if fits else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Announced(Event, calm=True, size_field="world_size"):
    """A rank's own word that it came to form a group (of `world_size`, where it says so)."""

    world_size: int | None = None
    forms = (
        says(
            r"nitializing (?:distributed|ddp|fsdp|deepspeed): GLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(?P<world_size>\d{1,7})",
            read=_announced,
        ),
        # gloo/transport/tcp/pair.cc, of a connection that it could not make
        says(r"\(rank=(\d{1,7}), size=(?P<world_size>\d{1,7}), local=\[", read=_announced),
        says(r"\bdistributed init \(rank (\d{1,7})\)", read=_announced),
        # vllm/distributed/parallel_state.py
        says(r"\brank (\d{1,7}) in world size (?P<world_size>\d{1,7}) is assigned as", read=_announced),
        says(r"\binitialized host \S{1,253} as rank (\d{1,7})$", read=_announced),
    )


_NODES = regex(r"\bnnodes=(\d{1,6}), num_local_procs=(\d{1,6}), node_rank=(\d{1,6})")
_WORLD = regex(r"\bdist_world_size=(\d{1,8})")
_SPAWNED = regex(r"\bprocess (\d{1,9}) spawned with command: .{0,4000}?--local[_-]rank[=', ]{1,4}(\d{1,6})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawned(Event, by_launcher=True, calm=True):
    """A process was started as the rank that the event carries; `pid` is its process id on `host`."""


@dataclass(slots=True)
class _Node:
    """What the launcher of one node said before it started anything."""

    nodes: int = 0
    processes: int = 0
    number: int = 0
    world: int = 0

    def rank(self, local: int) -> int | None:
        """Return the global rank of a local one, None where nodes may run unequally many."""
        if self.nodes == 1:
            return local
        rank = self.number * self.processes + local
        equal = self.nodes * self.processes == self.world and local < self.processes
        return rank if equal and rank < min(self.world, MAX_RANKS) else None


class DeepSpeedParser(LineParser):
    """Reads the launcher's lines; each node's are told apart by the prefixes that pdsh and others put before them."""

    literals = (b"num_local_procs=", b"dist_world_size=", b" spawned with command: ")

    def __init__(self) -> None:
        self._nodes: dict[str, _Node] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the process that a line tells of."""
        node = self._nodes.setdefault(line.host or line.origin, _Node())
        if match := _NODES.search(line.text):
            node.nodes, node.processes, node.number = map(int, match.groups())
        elif match := _WORLD.search(line.text):
            node.world = int(match[1])
        elif match := _SPAWNED.search(line.text):
            local = int(match[2])
            rank = node.rank(local) if node.nodes else None
            if (
                rank is not None or not node.nodes
            ):  # without its lines about the nodes: as good as any other local rank
                yield line.event(Spawned, rank=rank, pid=int(match[1]), local_rank=local)
