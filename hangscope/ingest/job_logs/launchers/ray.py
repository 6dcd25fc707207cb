"""What Ray tells of the processes that are a job's ranks: which rank each is, and which of them died.

    - (node_id=9f1c, ip=10.0.0.4, pid=26811) world_rank=1, local_rank=1, node_rank=0
    (RayTrainWorker pid=26811) Setting up process group for: env:// [rank=1, world_size=4]
    (raylet) ... (actor ID: 5a3d0, name=q8GxKkWorkerDict_0:6, pid=5581, memory used=171.20GB) was running was 1910.11GB / 2003.90GB ...
    (raylet) A worker died or was killed while executing a task by an unexpected system error. ... Worker PID: 26811 ...

(ray/train/_internal/backend_executor.py and v2/_internal/execution/worker_group, ray/train/torch/config.py; the last is
src/ray/core_worker's, of 2.x, the one before of its memory monitor, which names the worker that it ends.) verl numbers the actors of
a node by their local rank, and of the first node that is the rank (verl/single_controller/ray/base.py). Actors that are started by hand say themselves which rank of how many they are. The raylet speaks of
each process that it lost, the survivors that their watchdogs aborted among them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hangscope.ingest.job_logs.faults import OomHost
from hangscope.ingest.job_logs.launchers.starts import Spawned
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_FIRST_NODE = regex(r"[A-Za-z]_0:(\d{1,5})$")
_PID, _ADDRESS = regex(r"Worker PID: (\d{1,9})\b"), regex(r"Worker IP address: ([\w.:]{2,64})")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDied(Event, same_by=("pid",), by_launcher=True):
    """The raylet's word that it lost a process; `pid` is that one's."""


def _started(line: Line, match: re.Match[str]) -> Event | None:
    address, pid, rank, local = match.groups()
    if int(rank) >= MAX_RANKS:
        return None
    return line.event(Spawned, rank=int(rank), local_rank=int(local), host=address, pid=int(pid))


def _introduced(line: Line, match: re.Match[str]) -> Event | None:
    rank, size = int(match[1]), int(match[2])
    told = line.pid is not None and line.rank in (None, rank) and rank < size <= MAX_RANKS
    return line.event(Spawned, rank=rank) if told else None


def _died(line: Line, match: re.Match[str]) -> Event:
    pid, address = _PID.search(line.text), _ADDRESS.search(line.text)
    event = line.event(WorkerDied, host=address[1] if address else None)
    return replace(event, pid=int(pid[1]) if pid else None)


def _out_of_memory(line: Line, match: re.Match[str]) -> Event:
    name, pid = match.groups()
    first = _FIRST_NODE.search(name)
    event = line.event(OomHost, rank=int(first[1]) if first else None, victim_pid=int(pid))
    return replace(event, pid=None)


_RULES = (
    (
        regex(r"name=(\S{1,200}?), pid=(\d{1,9}), memory used=.{0,300}?exceeds the memory usage threshold"),
        _out_of_memory,
    ),
    (regex(r"ip=([\w.:]{2,64}), pid=(\d{1,9})\) world_rank=(\d{1,7}), local_rank=(\d{1,6})\b"), _started),
    (regex(r"process group for: \S{1,200} \[rank=(\d{1,7}), world_size=(\d{1,7})\]"), _introduced),
    (regex(r"^[Rr]ank[ :=]{1,2}(\d{1,7})(?:/| of )(\d{1,7})\b"), _introduced),
    (regex(r"Worker unexpectedly exits with a connection error"), _died),
)


class RayParser(LineParser):
    """Reads what Ray, and actors about themselves, tell of processes. Behind the bracket of Ray's prefix an actor's own words begin."""

    literals = (
        b") world_rank=",
        b"process group for: ",
        b") rank ",
        b") Rank ",
        b") rank=",
        b") rank:",
        b") Rank:",
        b"Worker unexpectedly exits",
        b" the memory usage threshold",
    )

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the process that a line tells of."""
        for pattern, build in _RULES:
            if (match := pattern.search(line.text)) and (event := build(line, match)) is not None:
                yield event
                return
