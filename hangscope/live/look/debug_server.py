"""torch.distributed.debug's server, where a job has started it: stacks and recorders of the ranks on this node.

Its page `/stacks` names each rank's own server, `<h2>Rank 3: http://gpu07:40123/handler/dump_traceback?</h2>`, which
answers `fr_trace_json`, `dump_nccl_trace_json` and `dump_traceback` (torch 2.13, torch/distributed/debug/_frontend.py and
_debug_handlers.py). The page is looked for where nothing else listens: at ports of a process that rank 0 has started which
no rank has open, as a word to a socket of the job's own traffic could end it.

A page is not believed: only ports of this node on which that very rank listens are asked, redirects are not followed,
and time, bytes and the number of requests have limits.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hangscope.live.folder import leave
from hangscope.live.look.processes import Process
from hangscope.live.look.sockets import inodes_of, tcp_sockets
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_PATIENCE = 5.0  # s for one answer: a rank may be beyond answering
_IN_ALL = 20.0  # s for all answers
_AT_ONCE = 4
_PORTS = 4  # on which a page is looked for
_MOST, _MOST_IN_ALL = 32 << 20, 512 << 20  # bytes of one answer, and of all
_RANK = regex(rb"<h2>Rank (\d{1,7}): http://[\w.:\[\]-]{1,300}:(\d{1,5})/handler/")
_OK = regex(rb"HTTP/1\.[01] 200 ")
_ANSWERS = (
    ("stack_rank_{}.txt", "dump_traceback", b"File "),
    ("comm_lib_trace_rank_{}.json", "fr_trace_json", b'"entries"'),
    ("nccl_trace_rank_{}.json", "dump_nccl_trace_json", b'"entries"'),
)


def ask_debug_server(processes: Sequence[Process], target: Path) -> None:
    """Put what the server tells of the ranks on this node into `target`, nothing that is there already."""
    client = _Client(time.monotonic() + _IN_ALL)
    ranks = {process.rank: process for process in processes if process.is_rank}
    found = next((ports for port in _pages(processes) if (ports := _servers(client, port))), {})
    asked = [
        (port, target / name.format(rank), endpoint, sign)
        for rank, port in sorted(found.items())
        if rank in ranks and port in _ports(ranks[rank].pid, inodes_of(ranks[rank].pid))
        for name, endpoint, sign in _ANSWERS
    ]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        list(pool.map(lambda one: _leave(client, *one), asked))


def _pages(processes: Sequence[Process]) -> list[int]:
    """Return the ports on which a process that rank 0 has started listens alone."""
    of_ranks = {inode for process in processes if process.is_rank for inode in inodes_of(process.pid)}
    ports: set[int] = set()
    for process in processes:
        if process.rank == 0 and process.worker_of is not None:
            # a process that was forked has its parent's as well
            ports |= _ports(process.pid, inodes_of(process.pid) - of_ranks)
    return sorted(ports)[:_PORTS]


def _ports(pid: int, inodes: set[str]) -> set[int]:
    """Return the ports on which the sockets in `inodes` listen, in the network namespace of a process."""
    return {each.port for each in tcp_sockets(pid, inodes) if each.state == "listening"}


def _servers(client: _Client, port: int) -> dict[int, int]:
    """Return the port of each rank's own server, as the page on a port tells; nothing where it is another page."""
    page = client.answer(port, "GET /stacks")
    if b"Torch Distributed Debug Server" not in page:
        return {}
    return {int(rank): int(own) for rank, own in _RANK.findall(page)}


def _leave(client: _Client, port: int, target: Path, endpoint: str, sign: bytes) -> None:
    """Write one answer of one rank, where there is one that bears its sign."""
    if target.exists() or (endpoint != "dump_traceback" and target.with_suffix("").exists()):
        return
    data = client.answer(port, f"POST /handler/{endpoint}")
    if sign in data:
        leave(target, data)


@dataclass(slots=True)
class _Client:
    """Asks servers on this node; all answers end at the deadline (of the monotonic clock) and share a number of bytes."""

    deadline: float
    left: int = _MOST_IN_ALL

    def answer(self, port: int, request: str) -> bytes:
        """Return the body of a server's answer, b"" where there is none, or not in time, or too long a one."""
        end = min(self.deadline, time.monotonic() + _PATIENCE)
        for host in ("127.0.0.1", "::1"):
            try:
                with socket.create_connection((host, port), max(0.01, end - time.monotonic())) as connection:
                    head = f"{request} HTTP/1.0\r\nHost: localhost:{port}\r\nContent-Length: 0\r\n\r\n"
                    connection.sendall(head.encode())
                    return self._body(connection, end)
            except ConnectionRefusedError:
                continue  # it listens on the other one
            except OSError:
                break
        return b""

    def _body(self, connection: socket.socket, end: float) -> bytes:
        """Return the body of what comes until the server closes, which it does after one answer by HTTP/1.0."""
        data = bytearray()
        while part := connection.recv(1 << 16):
            data += part
            self.left -= len(part)
            seconds = end - time.monotonic()
            if self.left < 0 or len(data) > _MOST or seconds <= 0:
                return b""
            connection.settimeout(seconds)
        head, _, body = data.partition(b"\r\n\r\n")
        return bytes(body) if _OK.match(head) else b""
