"""The life of a communicator in INIT lines: started, through bootstrap, complete, aborted, destroyed.

Shapes of src/init.cc by release: 2.4 without busId; 2.5 to 2.15 without commId and without START; commId from
2.16.2; START from 2.18.3, printed *after* bootstrap up to 2.22 and *before* it from 2.23.4; the API's name
from 2.21.5 (2.23.4 for all), with parent, color and key for splits; splitCount from 2.24.3, called childCount
from 2.29.2.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl import init
from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.nccl.line import version_tuple
from hangscope.ingest.nccl.process import Process
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\))"
_COMM = regex(
    rf"(?:\[Rank \d{{1,7}}\] )?(?:(?P<api>ncclComm\w{{1,40}}) )?comm (?P<comm>{_POINTER}) "
    r"rank (?P<rank>\d{1,7}) n[rR]anks (?P<nranks>\d{1,7}) cudaDev (?P<dev>-?\d{1,5})(?: nvmlDev -?\d{1,5})?"
    r"(?: busId (?P<bus>[0-9a-f]{1,16}))?"
    rf"(?: parent (?P<parent>{_POINTER}))?(?: (?:splitCount|childCount) (?P<split>\d{{1,9}}))?"
    r"(?: color (?P<color>-?\d{1,20}) key -?\d{1,20})?(?: commId (?P<id>0x[0-9a-f]{1,16}))?"
    r"(?: localSize \d{1,7} used \d{1,20} bytes(?: on core \d{1,7})?)?"
    r" ?- (?P<word>Init|Abort|Destroy|Revoke) (?P<step>START|COMPLETE)"
)
_LAYOUT = regex(rf"comm (?P<comm>{_POINTER}) rank \d{{1,7}} nRanks \d{{1,7}} nNodes \d{{1,7}} ")
_BOOTSTRAP_DONE = regex(r"Bootstrap timings total ")
_ADDRESS = regex(r"Bootstrap ?: Using (?:[\w.@\-]{1,64}:)?(?P<ip>[0-9a-fA-F.:%\w]{2,64}?)<\d{1,5}>")
_NETWORK = regex(r"Using network (?P<network>[\w .\-]{1,64})")
_NO_COLOR = regex(r"Rank (?P<rank>\d{1,7}) has color with NCCL_SPLIT_NOCOLOR")
_PHASES = {
    ("Init", "START"): "start",
    ("Init", "COMPLETE"): "complete",
    ("Destroy", "COMPLETE"): "destroy",
    ("Abort", "START"): "abort",
    ("Abort", "COMPLETE"): "abort",
    ("Revoke", "START"): "abort",
    ("Revoke", "COMPLETE"): "abort",
}
#: The first release that prints START before bootstrap.
START_BEFORE_BOOTSTRAP = (2, 23)


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclInit(Event, calm=True, size_field="nranks"):
    """One step in a communicator's life as one process prints it, or (`phase` process) that process's first word.

    `phase`: process, start, bootstrap, complete, abort or destroy; `bus_id` is that of the process's GPU.
    """

    phase: str
    nranks: int | None = None
    bus_id: str | None = None


@dataclass(frozen=True, slots=True)
class LifeLine:
    """One step in a communicator's life. `comm` is its pointer; `ends`: the pointer is free afterwards."""

    phase: str
    comm: str
    comm_rank: int
    nranks: int
    cuda_dev: int
    bus_id: str | None
    comm_id: str | None
    parent: str | None
    split: int | None
    color: int | None
    api: str | None
    ends: bool


def parse_life(message: str) -> LifeLine | None:
    """Return the step that an INIT or DESTROY line tells, or None for other messages."""
    match = _COMM.match(message)
    if match is None:
        return None
    phase = _PHASES.get((match["word"], match["step"]))
    if phase is None or int(match["nranks"]) > MAX_RANKS:  # no job has so many, and each would cost memory
        return None
    parent = match["parent"]
    return LifeLine(
        phase=phase,
        comm=match["comm"],
        comm_rank=int(match["rank"]),
        nranks=int(match["nranks"]),
        cuda_dev=int(match["dev"]),
        bus_id=match["bus"],
        comm_id=match["id"],
        parent=None if parent in (None, "(nil)", "0x0") else parent,
        split=int(match["split"]) if match["split"] else None,
        color=int(match["color"]) if match["color"] else None,
        api=match["api"],
        ends=phase == "destroy" or (match["word"] == "Abort" and match["step"] == "COMPLETE"),
    )


def starts_after_bootstrap(life: LifeLine, version: str) -> bool:
    """Return whether a START of this shape was printed when bootstrap had already passed.

    True for shapes of 2.18.3 to 2.22: no API name, or a split that prints its commId, or a known version. The
    shape of 2.21.5 to 2.22 for other communicators is the later one's too, so an unknown version says False.
    """
    if life.api is None or (life.parent is not None and life.comm_id is not None):
        return True
    known = version_tuple(version)
    return bool(known) and known < START_BEFORE_BOOTSTRAP


def layout_pointer(message: str) -> str | None:
    """Return the pointer in a node-layout line (2.20.3 on), printed after bootstrap, before connecting."""
    match = _LAYOUT.match(message)
    return match["comm"] if match else None


def is_bootstrap_done(message: str) -> bool:
    """Return whether the message ends a bootstrap (2.23.4 on); it names no communicator."""
    return _BOOTSTRAP_DONE.match(message) is not None


def bootstrap_address(message: str) -> str | None:
    """Return the address that a process uses for bootstrap, or None for other messages."""
    match = _ADDRESS.search(message)
    return match["ip"] if match else None


def network_name(message: str) -> str | None:
    """Return the transport that a process uses between nodes: IB, Socket or a plugin's name."""
    match = _NETWORK.match(message)
    return match["network"].strip() if match else None


def rank_without_color(message: str) -> int | None:
    """Return the rank that took part in a split without joining a part of it, or None for other messages."""
    match = _NO_COLOR.search(message)
    return int(match["rank"]) if match else None


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


def step_of(line: Line, process: Process, comm: Communicator) -> Event:
    """Return the event of the step that a communicator's life has come to."""
    step = {"phase": comm.phase, "nranks": comm.nranks, "bus_id": comm.bus_id}
    return event_of(line, process, init.NcclInit, step, comm.comm_rank)


def passed_bootstrap(line: Line, process: Process, comm: Communicator) -> Event:
    """Note that a communicator is past its bootstrap, and return the event of it."""
    comm.phase = "bootstrap"
    return step_of(line, process, comm)


def event_of(
    line: Line, process: Process, kind: type[Event], fields: dict[str, Any], group_rank: int | None = None
) -> Event:
    """Return an event of a process, whose host and number win over those of the line's prefix."""
    event = line.event(kind, group_rank, **fields)
    return replace(
        event, host=process.host or line.host, pid=process.pid if process.pid is not None else line.pid
    )
