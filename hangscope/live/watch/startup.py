"""Why a job has not started to make progress: who has arrived, who connects to which address, who is missing."""

from __future__ import annotations

import os
import socket
import struct
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from hangscope.live.agent.hangscope_agent import proc
from hangscope.live.look.processes import Process
from hangscope.live.look.status import read_status
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import ranks_phrase

_STATES = {"01": "connected", "02": "no answer yet", "0A": "listens"}


@dataclass(frozen=True, slots=True)
class Socket:
    """One TCP socket of a process; `host` and `port` are the other end's, or where it listens."""

    state: str
    host: str
    port: int


def diagnosis(processes: Sequence[Process]) -> list[str]:
    """Return sentences about the ranks and launchers of this node, the most telling first."""
    ranks = [process for process in processes if process.is_rank]
    return [
        *_missing(ranks),
        *_addresses(ranks),
        *_connections(ranks),
        *_places(ranks),
        *_launchers(processes, ranks),
    ]


def _missing(ranks: Sequence[Process]) -> Iterator[str]:
    """Say which ranks have started and joined, and which have not."""
    seen = {process.rank for process in ranks if process.rank is not None}
    world = max((process.world_size or 0 for process in ranks), default=0)
    absent = sorted(set(range(world)) - seen)
    if absent:
        yield f"{ranks_phrase(sorted(seen))} of {world} started on this node; {ranks_phrase(absent)} did not start here"
    joined = {p.rank for p in ranks if p.rank is not None and (s := read_status(p.pid)) and s.world_size}
    if seen - joined and joined:
        yield f"{ranks_phrase(sorted(joined))} joined the process group; {ranks_phrase(sorted(seen - joined))} did not"


def _addresses(ranks: Sequence[Process]) -> Iterator[str]:
    """Say where the ranks were told to meet, if they were not all told the same."""
    for name in ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE"):
        told = defaultdict(list)
        for process in ranks:
            told[_environment(process).get(name, "(not set)")].append(process.rank or 0)
        if len(told) > 1:
            each = "; ".join(
                f"{value} for {ranks_phrase(sorted(who))}" for value, who in sorted(told.items())
            )
            yield f"{name} differs: {each}"


def _connections(ranks: Sequence[Process]) -> Iterator[str]:
    """Say which ranks reach the store at MASTER_ADDR:MASTER_PORT, and whether rank 0 serves it."""
    states = defaultdict(list)
    for process in ranks:
        settings = _environment(process)
        host, port = settings.get("MASTER_ADDR", ""), settings.get("MASTER_PORT", "")
        if not port.isdecimal():
            continue
        own = [s for s in sockets(process.pid) if s.port == int(port)]
        if any(s.state == "listens" for s in own):
            states[f"serving the store at port {port}"].append(process.rank or 0)
        elif own:
            one = min(own, key=lambda s: s.state != "connected")
            what = "connected to" if one.state == "connected" else "no answer from"
            states[f"{what} {one.host}:{port} (MASTER_ADDR={host})"].append(process.rank or 0)
        else:
            states[f"no connection to MASTER_ADDR={host}, MASTER_PORT={port}"].append(process.rank or 0)
    for text, who in sorted(states.items(), key=lambda item: (not item[0].startswith("no "), item[0])):
        yield f"{ranks_phrase(sorted(who))}: {text}"


def _places(ranks: Sequence[Process]) -> Iterator[str]:
    """Say where each rank's main thread is."""
    places = defaultdict(list)
    for process in ranks:
        status = read_status(process.pid)
        if status is not None and status.at:
            places[status.at].append(process.rank or 0)
    for place, who in sorted(places.items()):
        yield f"{ranks_phrase(sorted(who))}: at {place}"


def _launchers(processes: Sequence[Process], ranks: Sequence[Process]) -> Iterator[str]:
    """Say whom a launcher tries to reach that has started no rank."""
    for process in processes:
        if process.is_launcher and not ranks:
            tried = {f"{s.host}:{s.port} ({s.state})" for s in sockets(process.pid) if s.state != "listens"}
            where = ", ".join(sorted(tried)) or "nobody"
            yield f"the launcher (process {process.pid}) has started no rank; it connects to {where}"


def _environment(process: Process) -> Mapping[str, str]:
    with suppress(OSError):
        return proc.process_of(process.pid)[0]
    return {}


def sockets(pid: int) -> list[Socket]:
    """Return the TCP sockets that a process has open."""
    inodes, found = set(), []
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                inodes.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    for name in ("tcp", "tcp6"):
        with suppress(OSError, ValueError), open(f"/proc/{pid}/net/{name}") as file:
            for fields in map(str.split, file):
                if len(fields) > 9 and f"socket:[{fields[9]}]" in inodes and fields[3] in _STATES:
                    end = fields[1 if fields[3] == "0A" else 2]
                    found.append(Socket(_STATES[fields[3]], *_address(end)))
    return found


def _address(text: str) -> tuple[str, int]:
    """Return host and port of an address as /proc/net/tcp writes it: words in the byte order of the machine."""
    words, _, port = text.partition(":")
    raw = b"".join(struct.pack("=I", int(words[at : at + 8], 16)) for at in range(0, len(words), 8))
    if raw[:12] == b"\0" * 10 + b"\xff\xff":
        raw = raw[12:]
    host = socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)
    return host, int(port, 16)
