"""One process of an NCCL log: its communicators from their creation to the reuse of their pointers, and the calls that it issued."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.call_lines import copy_calls, last_calls, most_kept, without_calls
from hangscope.ingest.lines.forms import typed
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.comm import Communicator, name_communicators
from hangscope.ingest.nccl.line import CollLine, NcclLine
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import State

_STEADY_CALLS = 3  # so many calls that opCount numbered one by one show that it does


@dataclass(slots=True)
class _Track:
    """A communicator, and what is needed to count its calls."""

    comm: Communicator
    group: int  # its index in the recording
    suspect: bool = False  # a line that may have been a call on it was torn
    last_op_count: int = -1
    steady: bool = True  # opCount went up by exactly one per call so far
    pairs: dict[tuple[bool, int], int] = field(default_factory=dict)  # P2P ops by direction and peer
    exchanged: int = 0  # P2P ops in a row that go to and come from every member in turn, itself included
    next_order: int = -1
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)

    def accepts(self, op_count: int) -> bool:
        """Return whether the next call's number is certain, given its opCount.

        After a tear it is certain only where opCount numbered the calls one by one so far and does so across the gap.
        """
        if self.suspect:
            unbroken = self.steady and self.comm.calls >= _STEADY_CALLS and op_count == self.last_op_count + 1
            self.suspect, self.comm.intact = False, self.comm.intact and unbroken
        self.steady = self.steady and (not self.comm.calls or op_count == self.last_op_count + 1)
        self.last_op_count = op_count
        return self.comm.intact

    def exchanges_with_all(self, call: CollLine, order: int) -> bool:
        """Return whether a P2P op is the last of a send to and a receive from each member in turn.

        torch issues an all_to_all this way; a send of a pipeline never goes to its own rank.
        """
        done = self.exchanged if order == self.next_order else 0
        self.next_order = order + 1
        own = (call.to_peer, call.root)
        self.exchanged = done + 1 if own == (done % 2 == 0, done // 2) else 1 if own == (True, 0) else 0
        return call.nranks > 1 and self.exchanged == 2 * call.nranks


@dataclass(slots=True)
class Process:
    """What one process printed: its communicators by pointer, and its calls in the order of their lines."""

    file: str
    host: str
    pid: int | None
    origin: str
    lane: str
    recording: Recording
    version: str = ""
    ip: str | None = None
    network: str | None = None
    device: int | None = None  # of the thread that issued its last call
    traced: bool = False
    communicators: list[Communicator] = field(default_factory=list)
    live: dict[str, _Track] = field(default_factory=dict)
    late: bool = False  # a call came on a communicator whose creation was not logged
    _order: int = 0
    _made: dict[str, int] = field(default_factory=dict)

    def _create(self, fields: Mapping[str, Any], line: int) -> _Track:
        """Return a new incarnation of a pointer."""
        pointer = fields["pointer"]
        nth = self._made[pointer] = self._made.get(pointer, 0) + 1
        local_id = f"{self.file}|{self.origin}{self.host}:{self.pid or self.lane}|{pointer}#{nth}"
        comm = Communicator(self.file, self.host, self.pid, local_id=local_id, first_line=line, **fields)
        self.communicators.append(comm)
        track = self.live[pointer] = _Track(comm, self.recording.group(local_id, "", ""))
        return track

    def step(self, life: re.Match[str], line: int) -> Communicator:
        """Take one step of a communicator's life, and return that communicator."""
        pointer, fields = life["pointer"], dict(typed(Communicator, life))
        track = self.live.get(pointer)
        if track is not None and life["step"] is None:
            return track.comm
        step = fields["step"] = life["step"] or "Init START"
        first = step == "Init START" or (
            step == "Init COMPLETE" and track and track.comm.step != "Init START"
        )
        if track is None or first:
            track = self._create(fields, line)
            if life["parent_pointer"] not in (None, "(nil)", "0x0"):
                self._derive(track.comm, life["parent_pointer"])
            # a log that begins with a communicator's end does not contain its creation
            track.comm.completed = not step.startswith("Init")
        comm = track.comm
        comm.step, comm.last_line = step, line
        comm.completed = comm.completed or step == "Init COMPLETE"
        comm.comm_id = comm.comm_id or fields.get("comm_id")
        if step in ("Destroy COMPLETE", "Abort COMPLETE"):
            del self.live[pointer]
            comm.intact = comm.intact and not track.suspect
        return comm

    def _derive(self, comm: Communicator, parent_pointer: str) -> None:
        """Note which communicator a new one was split from, and which split it is."""
        parent = self.live.get(parent_pointer)
        comm.split_printed = comm.split is not None
        if parent is None:
            comm.split = comm.split or 0
            return
        comm.parent = parent.comm.local_id
        comm.split = parent.comm.children + 1 if comm.split is None else comm.split
        parent.comm.children = max(parent.comm.children + 1, comm.split)

    def skip_split(self, rank: int) -> None:
        """Count a split in which this process took part without joining a part of it, so that later ordinals agree."""
        comms = [t.comm for t in self.live.values() if t.comm.comm_rank == rank and t.comm.split is None]
        if comms:
            max(comms, key=lambda comm: comm.nranks or 0).children += 1

    def record(self, call: CollLine, line: int, created: int, keep: int) -> None:
        """Add one COLL line. `created` is in ns (0: unknown), `keep` how many calls may be kept."""
        track = self.live.get(call.pointer)
        if track is None:
            fields = {"pointer": call.pointer, "nranks": call.nranks, "cuda_dev": self.device}
            fields |= {"comm_rank": call.rank, "completed": True}
            track, self.late = self._create(fields, line), True
            if call.to_peer is None:  # the text may begin in the middle of a job
                track.comm.calls, self._order = call.op_count, self._order or call.op_count
        comm = track.comm
        comm.last_line, comm.completed = line, True
        if not track.accepts(call.op_count):
            return
        key = (call.op, call.key)
        kind = track.kinds.get(key)
        if kind is None:
            kind = track.kinds[key] = self.recording.kind(call.kind(comm.comm_rank))
        if call.to_peer is None:
            seq = comm.calls = comm.calls + 1
        else:
            pair = (call.to_peer, call.root)
            seq = track.pairs[pair] = track.pairs.get(pair, 0) + 1
        order = self._order
        self._order += 1
        add = self.recording.add
        add(group=track.group, seq=seq, kind=kind, state=State.UNKNOWN, created=created, order=order)
        if call.to_peer is not None and track.exchanges_with_all(call, order):
            self._fold_exchange(track, call, created)
        if order > 2 * keep and len(self.recording) > 2 * keep:
            text = "only the last calls of this process were kept"
            self.recording = last_calls(self.recording, keep, Note("history_trimmed", text, self.file))
            for track in self.live.values():
                track.kinds.clear()

    def _fold_exchange(self, track: _Track, call: CollLine, created: int) -> None:
        """Replace the P2P ops of an exchange by one all_to_all; their sizes are each member's own."""
        columns, rows = self.recording.columns, min(2 * call.nranks, len(self.recording))
        order = columns["order"][-rows]
        for column in columns.values():
            del column[-rows:]
        for pair in track.pairs:
            track.pairs[pair] -= 1
        track.exchanged, track.comm.calls = 0, track.comm.calls + 1
        types = (call.dtype,)
        kind = self.recording.kind(("all_to_all", "nccl", (), (), types, types, None, None, -1, None))
        add, seq = self.recording.add, track.comm.calls
        add(group=track.group, seq=seq, kind=kind, state=State.UNKNOWN, created=created, order=order)

    def tear(self, pointer: str | None) -> None:
        """Note that a COLL line was cut: the numbers of the calls after it are uncertain."""
        torn = self.live.get(pointer) if pointer else None
        for track in [torn] if torn else self.live.values():
            track.suspect = True

    def finish(self) -> None:
        """Settle what only the end shows: tears without a later call, ranks that peers leave open, names, the process's own facts."""
        for track in self.live.values():
            track.comm.intact = track.comm.intact and not track.suspect
            others = {peer for _, peer in track.pairs}
            if track.comm.comm_rank is None and track.comm.nranks == len(others) + 1:
                self._take_place(track, *set(range(track.comm.nranks)) - others)
        for comm in self.communicators:
            comm.ip, comm.network = self.ip, self.network
        name_communicators(self.communicators)

    def _take_place(self, track: _Track, rank: int) -> None:
        """Give a communicator the only rank that its sends and receives do not name as their peer's."""
        track.comm.comm_rank, columns = rank, self.recording.columns
        own = dict[int, int]()
        for kind in track.kinds.values():
            row = self.recording.kinds[kind]
            src, dst = (rank if peer == -1 else peer for peer in row[6:8])
            own[kind] = self.recording.kind((*row[:6], src, dst, *row[8:]))
        for place, (group, kind) in enumerate(zip(columns["group"], columns["kind"], strict=True)):
            if group == track.group:
                columns["kind"][place] = own.get(kind, kind)

    def recordings(self) -> list[Recording]:
        """Return the calls as one recording, or one per device where the process is several ranks; call once, at the end."""
        whole, comms = self.recording, self.communicators
        whole.version, whole.host = self.version, self.host or None
        ranks: dict[str | None, set[int | None]] = {}
        for comm in comms:
            ranks.setdefault(comm.comm_id, set()).add(comm.comm_rank)
        parts = {"": whole}
        if any(len(seen) > 1 for comm_id, seen in ranks.items() if comm_id):
            parts, places = {}, []
            for comm in comms:
                part = parts.setdefault(comm.bus_id or f"dev{comm.cuda_dev}", without_calls(whole))
                places.append((part, part.group(comm.local_id, "", "")))
            copy_calls(whole, places)
        names = {comm.local_id: comm.name for comm in comms}
        for part in parts.values():
            part.groups = [(local_id, names[local_id], "") for local_id, _, _ in part.groups]
            part.config = {name: ("", None) for _, name, _ in part.groups}
            part.notes = whole.notes
        return [part for _, part in sorted(parts.items())] if comms else []


MAX_PROCESSES = 65_536  # bounds what a hostile file can make the parser keep


class Processes:
    """The processes of one input, in the order of their first lines.

    They are distinguished by host and pid, and by the launcher's prefix for containers that share both.
    """

    def __init__(self) -> None:
        self._by_head: dict[tuple[str, str, int | None, str], Process] = {}
        self._by_pid: dict[int, list[Process]] = {}
        self.keep = most_kept(1)  # calls of each

    def __len__(self) -> int:
        return len(self._by_head)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._by_head.values())

    def of(self, message: NcclLine, line: Line) -> Process | None:
        """Return whose line this is; None for a line without a head among lines that have one."""
        pid = message.pid
        if pid is None and self._by_pid:
            return None
        lane = f"dev{message.dev}" if pid is None and message.dev is not None else ""
        key = (line.origin, message.host, pid, lane)
        process = self._by_head.get(key)
        if process is None and pid is not None:
            same = [p for p in self._by_pid.get(pid, ()) if _may_be(p, message, line)]
            process = same[0] if len(same) == 1 else None
        if process is None and not message.inner and len(self) < MAX_PROCESSES:
            recording = Recording("nccl_log", rank=line.rank, pid=pid, task=line.task)
            process = Process(line.file, message.host, pid, line.origin, lane, recording)
            self._by_head[key] = process
            self.keep = most_kept(len(self))
            if pid is not None:
                self._by_pid.setdefault(pid, []).append(process)
        return process


def _may_be(process: Process, message: NcclLine, line: Line) -> bool:
    """Return whether a line of the same pid is a known process's, though its prefix or host differs.

    The host may begin with the rest of another line, whose head was cut: `node1:42node2:12:12 [0] NCCL INFO`.
    """
    if process.host == message.host:
        return message.truncated or not line.origin
    joined = message.inner or message.before
    return bool(joined and process.host and message.host.endswith(process.host))
