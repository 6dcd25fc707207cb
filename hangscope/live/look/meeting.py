"""Where ranks that are in no process group yet meet: the store that each was given, and whether it reaches it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import leave
from hangscope.live.look.processes import Process
from hangscope.live.look.sockets import inodes_of, tcp_sockets
from hangscope.live.look.status import read_status
from hangscope.model.dataclass import dataclass

#: What the sockets of a rank at the store's port say, the best first. The analysis reads it (StoreAccess).
_REACHES = {
    "listening": "serving the store at",
    "connected": "connected to the store at",
    "connecting": "no answer from the store at",
    "": "no connection to the store at",
}


@dataclass(frozen=True, slots=True)
class Meeting:
    """A rank that is starting: the host and port of its store, as it was told them, and what it says of that (`reaches`)."""

    rank: int
    pid: int
    host: str
    port: str
    reaches: str

    def __str__(self) -> str:
        return f"{self.reaches} {self.host}:{self.port}"


def meetings(ranks: Iterable[Process]) -> list[Meeting]:
    """Return those ranks that are in no process group and know where their store is."""
    found = map(_meeting, ranks)
    return [meeting for meeting in found if meeting is not None]


def _meeting(process: Process) -> Meeting | None:
    status = read_status(process.pid)
    if status is not None and status.world_size:
        return None
    host, _, port = (status.store if status is not None else "").rpartition(" ")
    if not host:
        with suppress(OSError):
            environment, _ = proc.process_of(process.pid)
            host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    if process.rank is None or not host or not port.isdecimal():
        return None
    sockets = tcp_sockets(process.pid, inodes_of(process.pid))
    states = {each.state for each in sockets if each.port == int(port)}
    best = next((state for state in _REACHES if state in states), "")
    return Meeting(process.rank, process.pid, host, port, _REACHES[best])


def leave_meetings(target: Path, ranks: Iterable[Process]) -> None:
    """Write one line about each rank that is starting into a capture. Raises OSError."""
    for meeting in meetings(ranks):
        text = f"process {meeting.pid} is starting: {meeting}\n"
        leave(target / f"start_rank_{meeting.rank}.txt", text.encode())
