"""Which rank each process is, as the process itself, Ray or DeepSpeed's launcher prints it.

    Initializing distributed: GLOBAL_RANK: 3, MEMBER: 4/4
    | distributed init (rank 3): env://
    2026-01-14 05:02:11 | INFO | fairseq.distributed.utils | initialized host gpu07 as rank 3
    - (node_id=9f1c, ip=10.0.0.4, pid=26811) world_rank=1, local_rank=1, node_rank=0
    (RayTrainWorker pid=26811) Setting up process group for: env:// [rank=1, world_size=4]
    [2026-01-14 05:02:11,440] [INFO] [launch.py:164:main] nnodes=2, num_local_procs=4, node_rank=1
    [2026-01-14 05:02:11,440] [INFO] [launch.py:175:main] dist_world_size=8
    [2026-01-14 05:02:11,441] [INFO] [launch.py:256:main] process 5201 spawned with command: ['python', '-u', 'sft.py', '--local_rank=0']

(lightning/fabric/utilities/distributed.py; the example scripts of torchvision and their descendants; fairseq;
ray/train/_internal/backend_executor.py, v2/_internal/execution/worker_group and torch/config.py; deepspeed/launcher/launch.py.)
Actors that users start print which rank of how many they are, after the bracket of Ray's prefix. DeepSpeed counts ranks node by
node, so a local rank is a global one where there is one node; where all nodes run equally many processes, the rank follows from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import any_of, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.events import Event
from hangscope.model.regex import regex


def _announced(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    rank, *size = (int(number) for number in match.groups() if number)
    fits = rank < MAX_RANKS and line.rank in (None, rank) and all(rank < n <= MAX_RANKS for n in size)
    return {"rank": rank} if fits else None


def _introduced(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    return _announced(line, match) if line.pid is not None else None


class Announced(Event, calm=True, size_field="world_size"):
    """A rank reports that it is about to form a group (of `world_size`, where the line states it)."""

    world_size: int | None = None
    forms = (
        says(
            r"nitializing (?:distributed|ddp|fsdp|deepspeed): GLOBAL_RANK: (\d{1,7}), MEMBER: \d{1,7}/(?P<world_size>\d{1,7})",
            read=_announced,
        ),
        # gloo/transport/tcp/pair.cc, of a connection that it could not make
        says(r"\(rank=(\d{1,7}), size=(?P<world_size>\d{1,7}), local=\[", read=_announced),
        says(r"\bdistributed init \(rank (\d{1,7})\)", read=_announced),
        # a program's own line before the call
        says(r"\brank[ =:]{1,2}(\d{1,7})\b.{0,80}\bcalling init_process_group\b", read=_announced),
        # torch/distributed/distributed_c10d.py, before the barrier of a group in the store
        says(r"\bAdded key: store_based_barrier_key:\d{1,6} to store for rank: (\d{1,7})", read=_announced),
        # vllm/distributed/parallel_state.py
        says(r"\brank (\d{1,7}) in world size (?P<world_size>\d{1,7}) is assigned as", read=_announced),
        says(r"\binitialized host \S{1,253} as rank (\d{1,7})$", read=_announced),
    )


class Spawned(Event, by_launcher=True, calm=True):
    """A process was started as the rank that the event carries; `pid` is its process id on `host`."""

    forms = (
        says(
            r"ip=(?P<host>[\w.:]{2,64}), pid=(?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7}), local_rank=(?P<local_rank>\d{1,6})\b"
        ),
        says(r"process group for: \S{1,200} \[rank=(\d{1,7}), world_size=(\d{1,7})\]", read=_introduced),
        *any_of(
            (") rank ", ") Rank ", ") rank=", ") rank:", ") Rank:"),
            r"^[Rr]ank[ :=]{1,2}(\d{1,7})(?:/| of )(\d{1,7})\b",
            read=_introduced,
        ),
    )


_SPAWNED = r"\bprocess (?P<pid>\d{1,9}) spawned with command: .{0,4000}?--local[_-]rank[=', ]{1,4}(?P<local>\d{1,6})\b"


def _launched(found: Found) -> Iterator[Event]:
    """Yield the processes that the launcher of one node started; without its line about the nodes only their local ranks are known."""
    nodes, per_node, node = map(int, next(found.all("nodes", "processes", "node"), (0, 0, 0)))
    equal = nodes * per_node == int(found.last("world") or 0) <= MAX_RANKS
    for line, match in found.parts:
        if "local" in match.groupdict():
            local, known = int(match["local"]), nodes == 1 or (equal and int(match["local"]) < per_node)
            rank = (node * per_node if nodes > 1 else 0) + local if known else None
            if rank is not None or not nodes:
                yield line.event(Spawned, rank=rank, pid=int(match["pid"]), local_rank=local)


LAUNCHED = block(
    says(r"\bnnodes=(?P<nodes>\d{1,6}), num_local_procs=(?P<processes>\d{1,6}), node_rank=(?P<node>\d{1,6})"),
    says(_SPAWNED),
    regex(r"\bdist_world_size=(?P<world>\d{1,8})"),
    regex(_SPAWNED),
    lines=20_000,
    gap=200,
    made=_launched,
)
