"""Why a job has not started to make progress: who has started, who is missing, and where ranks without a process group meet.

They meet at the store that each was given, whether it reaches it or not.
"""

from __future__ import annotations

import socket
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import leave
from hangscope.live.look.processes import Process
from hangscope.live.look.sockets import inodes_of, tcp_sockets
from hangscope.live.look.status import read_status
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase

#: What the sockets of a rank at the store's port say, the best first. The analysis reads it (StoreAccess).
_REACHES = {
    "listening": "serving the store at",
    "connected": "connected to the store at",
    "connecting": "no answer from the store at",
    "": "no connection to the store at",
}
_PORT, _MOST = 29500, 256  # torchrun's own port, and ranks of a node


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
    return list(filter(None, map(_meeting, ranks)))


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
    return Meeting(process.rank, process.pid, host, port, _reaches(process.pid, int(port)))


def _reaches(pid: int, port: int) -> str:
    states = {each.state for each in tcp_sockets(pid, inodes_of(pid)) if each.port == port}
    return _REACHES[next((state for state in _REACHES if state in states), "")]


def launcher_meetings(launcher: Process) -> list[Meeting]:
    """Return where torchrun's agent on one of several nodes meets the others, for each rank that it is to start.

    All nodes are taken to have as many ranks; where the nodes are numbered as they come (c10d, etcd), nothing tells the ranks.
    """
    node, nodes = proc.number(_told(launcher, "node-rank")), proc.number(_told(launcher, "nnodes"))
    ranks = proc.number(_told(launcher, "nproc-per-node") or "1")
    where = f"{_told(launcher, 'master-addr')}:{_told(launcher, 'master-port') or _PORT}"
    host, _, port = (_told(launcher, "rdzv-endpoint") or where).rpartition(":")
    static = _told(launcher, "rdzv-backend") in ("", "static")
    if node is None or (nodes or 0) < 2 or not ranks or ranks > _MOST or not host or not port.isdecimal():
        return []
    reaches, first = _reaches(launcher.pid, int(port)), node * ranks
    started = range(first, first + ranks) if static else ()
    return [Meeting(rank, launcher.pid, host, port, reaches) for rank in started]


def _told(launcher: Process, name: str) -> str:
    """Return an option of torchrun, from its command line or else its environment; empty where it was not given."""
    for at, word in enumerate(launcher.command):
        flag, sign, value = word.partition("=")
        if flag.startswith("--") and flag[2:].replace("_", "-") == name:
            return value if sign else "".join(launcher.command[at + 1 : at + 2])
    with suppress(OSError):
        return proc.process_of(launcher.pid)[0].get(f"PET_{name.upper().replace('-', '_')}", "")
    return ""


def leave_meetings(target: Path, processes: Sequence[Process]) -> None:
    """Write one line about each rank that is starting, or is yet to be started, into a capture. Raises OSError."""
    ranks = [process for process in processes if process.is_rank]
    launchers = [process for process in processes if process.is_launcher and not ranks]
    found = meetings(ranks) + [meeting for launcher in launchers for meeting in launcher_meetings(launcher)]
    for meeting in found:
        text = f"process {meeting.pid} on {socket.gethostname().split('.')[0]} is starting: {meeting}\n"
        leave(target / f"start_rank_{meeting.rank}.txt", text.encode())


def diagnosis(processes: Sequence[Process]) -> list[str]:
    """Return sentences about the ranks and launchers of this node, the most telling first."""
    ranks = [process for process in processes if process.is_rank]
    stores = _by_rank((meeting.rank, str(meeting)) for meeting in meetings(ranks))
    sizes = _by_rank((p.rank or 0, f"WORLD_SIZE={p.world_size}") for p in ranks)
    return [
        *_missing(ranks),
        *(sizes if len(sizes) > 1 else ()),
        *sorted(stores, key=lambda text: not text.partition(": ")[2].startswith("no ")),
        *_by_rank((p.rank or 0, f"at {s.at}") for p in ranks if (s := read_status(p.pid)) and s.at),
        *(() if ranks else _launchers(processes)),
    ]


def _missing(ranks: Sequence[Process]) -> Iterator[str]:
    """Say which ranks have started and joined, and which have not."""
    seen = {process.rank for process in ranks if process.rank is not None}
    world = max((process.world_size or 0 for process in ranks), default=0)
    if absent := set(range(world)) - seen:
        yield f"{ranks_phrase(seen)} of {world} started on this node; {ranks_phrase(absent)} did not start here"
    joined = {p.rank for p in ranks if p.rank is not None and (s := read_status(p.pid)) and s.world_size}
    if seen - joined and joined:
        yield f"{ranks_phrase(joined)} joined the process group; {ranks_phrase(seen - joined)} did not"


def _by_rank(said: Iterable[tuple[int, str]]) -> list[str]:
    """Return one sentence for all ranks of which the same is said."""
    ranks = defaultdict(list)
    for rank, text in said:
        ranks[text].append(rank)
    return [f"{ranks_phrase(sorted(who))}: {text}" for text, who in sorted(ranks.items())]


def _launchers(processes: Sequence[Process]) -> Iterator[str]:
    """Say whom launchers try to reach that have started no rank."""
    for process in processes:
        if process.is_launcher:
            sockets = tcp_sockets(process.pid, inodes_of(process.pid))
            tried = {f"{s.host}:{s.port} ({s.state})" for s in sockets if s.state != "listening"}
            where = ", ".join(sorted(tried)) or "nobody"
            yield f"the launcher (process {process.pid}) has started no rank; it connects to {where}"
