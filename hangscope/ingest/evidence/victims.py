"""Whose process or device a line of a kernel, a driver, a shell or a launcher speaks of: by its process id, or by the device's bus."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hangscope.events import Event
from hangscope.ingest.job_logs.endings import Exit, ExitOk
from hangscope.ingest.job_logs.faults import OomHost, Xid
from hangscope.ingest.job_logs.held import Computing, Held
from hangscope.ingest.job_logs.launchers.ray import WorkerDied
from hangscope.ingest.job_logs.messages import Message
from hangscope.ingest.nccl.init import NcclInit
from hangscope.regex import regex

_PCI = regex(r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2})(?::|$)")


def with_victims(events: Sequence[Event]) -> list[Event]:
    """Give lines of kernels, drivers and shells, which know process ids only, the rank of the process that they speak of."""
    ranks: dict[int, set[int]] = {}
    for event in events:
        if event.rank is not None and event.pid is not None:
            ranks.setdefault(event.pid, set()).add(event.rank)
    by_bus = _ranks_by_bus(events)
    named = []
    for event in events:
        pid = None
        if isinstance(event, Xid) and event.rank is None and event.victim_pid not in ranks:
            event = replace(event, rank=by_bus.get((event.host, _bus(event.device))))
        if event.rank is None and isinstance(event, (Xid, OomHost, Held, Computing, Message)):
            pid = event.victim_pid
        elif (
            event.rank is None and event.local_rank is None and isinstance(event, (Exit, ExitOk, WorkerDied))
        ):
            pid = event.pid
        known = ranks.get(pid, set()) if pid is not None else set()
        named.append(replace(event, rank=next(iter(known))) if len(known) == 1 else event)
    return named


def _ranks_by_bus(events: Sequence[Event]) -> dict[tuple[str | None, int | None], int]:
    """Return the rank whose device sits on a bus of a host, by NCCL's lines; of no host where they are of one host alone."""
    known: dict[tuple[str | None, int | None], set[int]] = {}
    hosts = {e.host for e in events if isinstance(e, NcclInit)}
    for event in events:
        if isinstance(event, NcclInit) and event.bus_id and event.rank is not None:
            bus = int(event.bus_id, 16) >> 12  # behind it stand the device and the function
            for host in {event.host, None if len(hosts) == 1 else event.host}:
                known.setdefault((host, bus), set()).add(event.rank)
    return {place: next(iter(ranks)) for place, ranks in known.items() if len(ranks) == 1}


def _bus(device: str | None) -> int | None:
    """Return the domain and the bus of `0000:87:00` as the number that begins NCCL's id of them."""
    found = _PCI.match(device or "")
    return int(found[1] + found[2], 16) if found else None
