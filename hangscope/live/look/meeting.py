"""Why a job has not started to make progress: who has started, who is missing, and where ranks without a process group meet.

They meet at the store that each was given, whether it reaches it or not.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.folder import leave
from hangscope.live.look.processes import Process, by_rank, read_status
from hangscope.live.look.sockets import inodes_of, tcp_sockets
from hangscope.model.rankset import ranks_phrase

#: What the sockets of a rank at the store's port say, the best first. The analysis reads it (StoreAccess).
_REACHES = {
    "listening": "serving the store at",
    "connected": "connected to the store at",
    "connecting": "no answer from the store at",
    "": "no connection to the store at",
}
_PORT, _MOST = 29500, 256  # torchrun's own port, and ranks of a node


def _access(pid: int, host: str, port: str) -> str:
    """Return what a process's sockets say of the store that it was given; empty if it was given none."""
    if not host or not port.isdecimal():
        return ""
    states = {each.state for each in tcp_sockets(pid, inodes_of(pid)) if each.port == int(port)}
    return f"{_REACHES[next((state for state in _REACHES if state in states), '')]} {host}:{port}"


def _of_rank(process: Process) -> str:
    """Return the access of a rank to its store; empty if it is in a process group or does not know its store."""
    status = read_status(process.pid)
    if status is not None and status.world_size:
        return ""
    host, _, port = (status.store if status is not None else "").rpartition(" ")
    if not host:
        with suppress(OSError):
            environment, _ = proc.process_of(process.pid)
            host, port = environment.get("MASTER_ADDR", ""), environment.get("MASTER_PORT", "")
    return _access(process.pid, host, port)


def _of_launcher(launcher: Process) -> tuple[Sequence[int], str]:
    """Return the ranks that torchrun's agent on one of several nodes is to start, and its access to where it meets the others.

    All nodes are taken to have as many ranks; where the nodes are numbered as they come (c10d, etcd), nothing tells the ranks.
    """
    node, nodes = proc.number(_told(launcher, "node-rank")), proc.number(_told(launcher, "nnodes"))
    ranks = proc.number(_told(launcher, "nproc-per-node") or "1")
    where = f"{_told(launcher, 'master-addr')}:{_told(launcher, 'master-port') or _PORT}"
    host, _, port = (_told(launcher, "rdzv-endpoint") or where).rpartition(":")
    static = _told(launcher, "rdzv-backend") in ("", "static")
    if not static or node is None or (nodes or 0) < 2 or not ranks or ranks > _MOST:
        return (), ""
    return range(node * ranks, (node + 1) * ranks), _access(launcher.pid, host, port)


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
    ranks = [(p.rank or 0, p) for p in processes if p.is_rank]
    found = [(rank, process.pid, _of_rank(process)) for rank, process in ranks]
    for launcher in [p for p in processes if p.is_launcher and not ranks]:
        started, access = _of_launcher(launcher)
        found += [(rank, launcher.pid, access) for rank in started]
    for rank, pid, access in found:
        if access:
            text = f"process {pid} on {socket.gethostname().split('.')[0]} is starting: {access}\n"
            leave(target / f"start_rank_{rank}.txt", text.encode())


def diagnosis(processes: Sequence[Process]) -> list[str]:
    """Return sentences about the ranks and launchers of this node, the most telling first."""
    ranks = [(p.rank or 0, p) for p in processes if p.is_rank]
    stores = by_rank((rank, _of_rank(p)) for rank, p in ranks)
    sizes = by_rank((rank, f"WORLD_SIZE={p.world_size}") for rank, p in ranks)
    return [
        *_missing(ranks),
        *(sizes if len(sizes) > 1 else ()),
        *sorted(stores, key=lambda text: not text.partition(": ")[2].startswith("no ")),
        *by_rank((rank, f"at {s.at}") for rank, p in ranks if (s := read_status(p.pid)) and s.at),
        *(() if ranks else _launchers(processes)),
    ]


def _missing(ranks: Sequence[tuple[int, Process]]) -> Iterator[str]:
    """Say which ranks have started and joined, and which have not."""
    seen = {rank for rank, _ in ranks}
    world = max((process.world_size or 0 for _, process in ranks), default=0)
    if absent := set(range(world)) - seen:
        yield f"{ranks_phrase(seen)} of {world} started on this node; {ranks_phrase(absent)} did not start here"
    joined = {rank for rank, p in ranks if (s := read_status(p.pid)) and s.world_size}
    if seen - joined and joined:
        yield f"{ranks_phrase(joined)} joined the process group; {ranks_phrase(seen - joined)} did not"


def _launchers(processes: Sequence[Process]) -> Iterator[str]:
    """Say whom launchers try to reach that have started no rank."""
    for process in processes:
        if process.is_launcher:
            sockets = tcp_sockets(process.pid, inodes_of(process.pid))
            tried = {f"{s.host}:{s.port} ({s.state})" for s in sockets if s.state != "listening"}
            where = ", ".join(sorted(tried)) or "nobody"
            yield f"the launcher (process {process.pid}) has started no rank; it connects to {where}"
