"""The life of a communicator as lines tell it: what it was made of, how far it is, and the events of both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl import init
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.process import Process
from hangscope.model.events import Event


def describe(comm: Communicator, life: init.LifeLine, process: Process) -> None:
    """Fill in what the first line of a communicator's life tells of it, and of which it was made."""
    comm.comm_rank, comm.nranks, comm.cuda_dev = life.comm_rank, life.nranks, life.cuda_dev
    comm.bus_id, comm.comm_id, comm.color, comm.api = life.bus_id, life.comm_id, life.color, life.api
    if life.parent is None:
        return
    parent = process.live.get(life.parent)
    comm.split_printed = life.split is not None
    if parent is None:
        comm.split = life.split or 0
        return
    comm.parent = parent.comm.local_id
    comm.split = life.split if life.split is not None else parent.comm.children + 1
    parent.comm.children = max(parent.comm.children + 1, comm.split)


def count_split_without_color(process: Process, rank: int) -> None:
    """Count a split that this process took part in without joining, so that later ordinals agree."""
    tracks = [t for t in process.live.values() if t.comm.comm_rank == rank and not t.comm.is_split]
    if tracks:
        max(tracks, key=lambda t: t.comm.nranks or 0).comm.children += 1


def life_fields(comm: Communicator) -> dict[str, Any]:
    """Return the fields of an NcclInit that tells where a communicator stands."""
    return {
        "phase": comm.phase,
        "comm": comm.pointer,
        "local_id": comm.local_id,
        "comm_id": comm.comm_id,
        "comm_rank": comm.comm_rank,
        "nranks": comm.nranks,
        "bus_id": comm.bus_id,
        "cuda_dev": comm.cuda_dev,
        "parent": comm.parent,
        "color": comm.color,
        "split": comm.split,
    }


def passed_bootstrap(line: Line, process: Process, comm: Communicator) -> Event:
    """Note that a communicator is past its bootstrap, and return the event of it."""
    comm.phase = "bootstrap"
    return event_of(line, process, init.NcclInit, life_fields(comm))


def event_of(line: Line, process: Process, kind: type[Event], fields: dict[str, Any]) -> Event:
    """Return an event of a process, whose host and number win over those of the line's prefix."""
    event = line.event(kind, fields.get("comm_rank"), **fields)
    return replace(
        event, host=process.host or line.host, pid=process.pid if process.pid is not None else line.pid
    )
