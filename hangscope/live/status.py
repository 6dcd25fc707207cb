"""What the agent in a rank tells of its recorder, read from its anonymous file: no disk, no network, no signal."""

from __future__ import annotations

import json
from dataclasses import dataclass

from hangscope.live.agent import hangscope_agent as agent


@dataclass(frozen=True, slots=True)
class Status:
    """How far one rank has come.

    `changes` counts how often its frontier was seen to have moved, `quiet` is since when it has not, in seconds, `moves`
    how often its main thread was seen at another place, `work` the long work it is known to be in (compile, save).
    """

    pid: int
    rank: int
    world_size: int
    changes: int
    quiet: float
    moves: int
    work: str


class StatusReader:
    """Reads the same processes again and again, and remembers where each has its file."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}

    def read(self, pid: int) -> Status | None:
        """Return what the agent of a process tells, None where there is none or no process group yet."""
        path = self._paths.get(pid) or agent.anonymous(pid, agent.STATUS_NAME)
        if not path:
            return None
        self._paths[pid] = path
        try:
            with open(path, "rb") as file:
                told = json.loads(file.read(4096))
            return Status(
                pid,
                int(told["rank"]),
                int(told["world"]),
                int(told["changes"]),
                float(told["quiet"]),
                int(told["moves"]),
                str(told["work"]),
            )
        except (OSError, ValueError, KeyError, TypeError):
            self._paths.pop(pid, None)
            return None


def read_status(pid: int) -> Status | None:
    """Return what the agent of a process tells, None where there is none or no process group yet."""
    return StatusReader().read(pid)
