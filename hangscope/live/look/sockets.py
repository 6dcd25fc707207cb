"""The TCP sockets of a process, as /proc lists them: where it listens, and what it connects to."""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

from hangscope.model.dataclass import dataclass

_STATES = {"01": "connected", "02": "connecting", "0A": "listening"}
_MOST = 1 << 16  # lines of /proc/net/tcp that are read


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket: connected, connecting or listening. `host` and `port` are the other end's, or where it listens."""

    state: str
    host: str
    port: int


def inodes_of(pid: int) -> set[str]:
    """Return the inodes of the sockets that a process has open."""
    found: set[str] = set()
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):  # it has been closed
                link = os.readlink(f"/proc/{pid}/fd/{number}")
                if link.startswith("socket:["):
                    found.add(link[len("socket:[") : -1])
    return found


def tcp_sockets(pid: int, inodes: set[str]) -> list[Socket]:
    """Return the TCP sockets among `inodes`, in the network namespace of a process."""
    found = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError, ValueError), open(f"/proc/{pid}/net/{name}") as file:
            for line, _ in zip(file, range(_MOST), strict=False):
                fields = line.split()
                if len(fields) > 9 and fields[9] in inodes and fields[3] in _STATES:
                    state = _STATES[fields[3]]
                    found.append(Socket(state, *_address(fields[1 if state == "listening" else 2])))
    return found


def _address(text: str) -> tuple[str, int]:
    """Return host and port of an address as /proc/net/tcp writes it: words in the byte order of the machine."""
    words, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    if raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    host = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return host, int(port, 16)
