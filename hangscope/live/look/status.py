"""What the agent in a rank tells of its recorder, read from its anonymous file: no disk, no network, no signal."""

from __future__ import annotations

import json

from hangscope.live.agent.hangscope_agent import proc
from hangscope.model.codec import from_plain
from hangscope.model.dataclass import dataclass

MOST_RANKS = 1 << 20  # that a process may claim
_MOST = 4096  # bytes of a status


@dataclass(frozen=True, slots=True)
class Status:
    """How far one rank has come; `world_size` is 0 before it is in a process group.

    `by_calls` says that its calls tell of its progress, or will, as soon as it makes some; else what it prints does.
    `changes` counts how often its frontier was seen to have moved, `printed` bytes that it printed outside of imports, `moves` how often its main thread was
    seen at another place or running Python code; `work` is the long work it is known to be in (import, compile, save), `at` the user's line; `saves`
    says that the program handles SIGTERM itself, `store` at which host and port its process group is to form.
    """

    pid: int
    rank: int
    world_size: int
    by_calls: bool
    changes: int
    printed: int
    moves: int
    work: str
    at: str = ""
    saves: bool = False
    store: str = ""


_paths: dict[int, str] = {}  # where processes that are read again and again have their file


def read_status(pid: int) -> Status | None:
    """Return what the agent of a process tells, None where there is none or it is no rank."""
    known = _paths.pop(pid, "")
    path = known or proc.anonymous(pid, proc.STATUS_NAME)
    if not path:
        return None
    try:
        with proc.open_anonymous(path) as file:
            status = from_plain(Status, {**json.loads(file.read(_MOST)), "pid": pid})
        if not 0 <= status.rank < MOST_RANKS or not 0 <= status.world_size <= MOST_RANKS:
            raise ValueError("no job has so many ranks")
        _paths[pid] = path
        return status
    except (OSError, ValueError, TypeError, RecursionError):
        return read_status(pid) if known else None
