"""torch.distributed.debug's server, where a job has started it: stacks and recorders of all ranks, of other nodes too.

Its page `/stacks` names each rank's own server, `<h2>Rank 3: http://gpu07:40123/handler/dump_traceback?</h2>`, which
answers `fr_trace_json`, `dump_nccl_trace_json` and `dump_traceback` (torch 2.13, torch/distributed/debug/_frontend.py and
_debug_handlers.py). The page is looked for where nothing else listens: at ports of a process that rank 0 has started which
no rank has open, as a word to a socket of the job's own traffic could end it.
"""

from __future__ import annotations

import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hangscope.live.folder import leave
from hangscope.live.look.processes import Process
from hangscope.regex import regex

_PATIENCE = 5.0  # s for one answer: a rank may be beyond answering
_AT_ONCE = 16
_MOST = 64 * 2**20  # bytes of one answer
_LISTENS = "0A"  # state of a socket in /proc/net/tcp
_RANK = regex(rb"<h2>Rank (\d{1,7}): (http://[\w.:\[\]-]{1,300})/handler/")
_ANSWERS = (
    ("stack_rank_{}.txt", "dump_traceback"),
    ("comm_lib_trace_rank_{}.json", "fr_trace_json"),
    ("nccl_trace_rank_{}.json", "dump_nccl_trace_json"),
)


def ask_debug_server(processes: Sequence[Process], target: Path) -> set[int]:
    """Put what the server tells of each rank into `target`, nothing that is there already; return the ranks that answered."""
    found = next((servers for port in _pages(processes) if (servers := _servers(port))), {})
    asked = [
        (rank, address, target / name.format(rank), endpoint)
        for rank, address in sorted(found.items())
        for name, endpoint in _ANSWERS
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        written = pool.map(lambda one: one[0] if _leave(*one[1:]) else None, asked)
        return {rank for rank in written if rank is not None}


def _pages(processes: Sequence[Process]) -> list[int]:
    """Return the ports on which a process that rank 0 has started listens alone."""
    of_ranks = {inode for process in processes if process.is_rank for inode in _sockets(process.pid)}
    ports: dict[int, None] = {}
    for process in processes:
        if process.rank == 0 and process.worker_of is not None:
            own = _sockets(process.pid) - of_ranks  # a process that was forked has its parent's as well
            ports |= dict.fromkeys(sorted(port for inode, port in _listening(process.pid) if inode in own))
    return list(ports)


def _sockets(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has open."""
    found: set[str] = set()
    try:
        for number in os.listdir(f"/proc/{pid}/fd"):
            link = os.readlink(f"/proc/{pid}/fd/{number}")
            if link.startswith("socket:["):
                found.add(link[len("socket:[") : -1])
    except OSError:
        pass  # it has ended, or a descriptor has been closed
    return found


def _listening(pid: int) -> list[tuple[str, int]]:
    """Return (inode, port) of the TCP sockets that listen where a process runs."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            with open(f"/proc/{pid}/net/{name}") as file:
                for line in file:
                    fields = line.split()
                    if len(fields) > 9 and fields[3] == _LISTENS:
                        found.append((fields[9], int(fields[1].rpartition(":")[2], 16)))
        except (OSError, ValueError):
            continue
    return found


def _servers(port: int) -> dict[int, str]:
    """Return the address of each rank's own server, as the page on a port tells; nothing where it is another page."""
    for host in ("localhost", "[::1]", "127.0.0.1"):
        page = _answer(f"http://{host}:{port}/stacks")
        if page is not None:
            is_it = b"Torch Distributed Debug Server" in page
            return {int(rank): address.decode() for rank, address in _RANK.findall(page)} if is_it else {}
    return {}


def _leave(address: str, target: Path, endpoint: str) -> bool:
    """Write one answer of one rank, and return whether there was one."""
    if target.exists() or (endpoint != "dump_traceback" and target.with_suffix("").exists()):
        return False
    data = _answer(f"{address}/handler/{endpoint}", b"")
    if not data or not _TELLS[endpoint](data):
        return False
    leave(target, data)
    return True


_TELLS: dict[str, Callable[[bytes], bool]] = {
    "dump_traceback": lambda data: b"File " in data,
    "fr_trace_json": lambda data: b'"entries"' in data,
    "dump_nccl_trace_json": lambda data: b'"entries"' in data,
}


def _answer(url: str, body: bytes | None = None) -> bytes | None:
    """Return what a server answers, None where it does not."""
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # no proxy knows these hosts
    try:
        with direct.open(urllib.request.Request(url, data=body), timeout=_PATIENCE) as reply:
            data = reply.read(_MOST + 1)
            return data if len(data) <= _MOST else None
    except (OSError, ValueError, urllib.error.URLError):
        return None
