"""One process of an NCCL log: its communicators from their creation to the reuse of their pointers, and the calls that it made."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl import calls
from hangscope.ingest.nccl.calls import CollLine, kind_of
from hangscope.ingest.nccl.comm import Communicator, name_communicators
from hangscope.ingest.nccl.line import NcclLine
from hangscope.ingest.recorder.recording import Recording
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import State

_STEADY_CALLS = 3  # so many calls that opCount numbered one by one show that it does


@dataclass(slots=True)
class _Track:
    """A communicator and what counting its calls needs to know."""

    comm: Communicator
    index: int  # of its group in the recording
    suspect: bool = False
    last_op_count: int = -1
    steady: bool = True  # opCount went up by exactly one per call so far
    pair_calls: dict[tuple[bool, int], int] = field(default_factory=dict)
    exchanged: int = (
        0  # sends and receives that so far go to and come from every member in turn, itself included
    )
    next_order: int = -1
    kinds: dict[tuple[str, str], int] = field(default_factory=dict)

    def accepts(self, op_count: int) -> bool:
        """Return whether the next call's number is certain, given its opCount.

        After a tear it is certain only where opCount numbered the calls one by one so far and does so across
        the gap.
        """
        if self.suspect:
            if self.steady and self.comm.calls >= _STEADY_CALLS and op_count == self.last_op_count + 1:
                self.suspect = False
            else:
                self.comm.intact = False
        return self.comm.intact


@dataclass(slots=True)
class Process:
    """What one process printed: its communicators by pointer, and its calls in the order of their lines."""

    file: str
    host: str
    pid: int | None
    origin: str = ""
    lane: str = ""
    version: str = ""
    ip: str | None = None
    network: str | None = None
    task: int | None = None
    device: int | None = None  # of the thread that made its last call
    traced: bool = False
    recording: Recording = field(default_factory=lambda: Recording(source="nccl_log"))
    communicators: list[Communicator] = field(default_factory=list)
    live: dict[str, _Track] = field(default_factory=dict)
    late: bool = False
    trimmed: bool = False
    _order: int = 0
    _made: dict[str, int] = field(default_factory=dict)

    def create(self, pointer: str, line: int) -> _Track:
        """Return a new incarnation of a pointer."""
        nth = self._made[pointer] = self._made.get(pointer, 0) + 1
        local_id = f"{self.file}|{self.origin}{self.host}:{self.pid or self.lane}|{pointer}#{nth}"
        comm = Communicator(
            self.file, self.host, self.pid, pointer, local_id, first_line=line, last_line=line, task=self.task
        )
        self.communicators.append(comm)
        track = self.live[pointer] = _Track(comm, self.recording.group(local_id, "", ""))
        return track

    def record(self, call: CollLine, line: int, created: int, keep: int) -> None:
        """Add one whole COLL line. `created` is ns (0: unknown), `keep` how many calls may be held."""
        track = self.live.get(call.pointer)
        if track is None:
            track = self.create(call.pointer, line)
            track.comm.nranks, track.comm.cuda_dev = call.nranks, self.device
            self.late = True
        comm = track.comm
        comm.last_line = line
        if not track.accepts(call.op_count):
            return
        track.steady = track.steady and (not comm.calls or call.op_count == track.last_op_count + 1)
        track.last_op_count = call.op_count
        key = (call.op, call.key)
        kind = track.kinds.get(key)
        if kind is None:
            kind = track.kinds[key] = self.recording.kind(kind_of(call, comm))
        if call.is_p2p:
            pair = (call.to_peer, call.root)
            seq = track.pair_calls[pair] = track.pair_calls.get(pair, 0) + 1
        else:
            seq = comm.calls = comm.calls + 1
        self.recording.add(
            group=track.index, seq=seq, kind=kind, state=State.UNKNOWN, created=created, order=self._order
        )
        self._order += 1
        if self._exchanges_with_all(track, call):
            self._fold_exchange(track, call, created)
        if len(self.recording) > 2 * keep:
            self._trim(keep)

    def _exchanges_with_all(self, track: _Track, call: CollLine) -> bool:
        """Return whether a call is the last of a send to and a receive from each member in turn.

        So torch makes an all_to_all; a send of a pipeline never goes to its own rank.
        """
        done = track.exchanged if self._order == track.next_order + 1 else 0
        track.next_order = self._order
        expected = {number: (number % 2 == 0, number // 2) for number in (done, 0)}
        at = next(
            (n for n, one in expected.items() if call.is_p2p and one == (call.to_peer, call.root)), None
        )
        track.exchanged = 0 if at is None else at + 1
        return call.nranks > 1 and track.exchanged == 2 * call.nranks

    def _fold_exchange(self, track: _Track, call: CollLine, created: int) -> None:
        """Put one all_to_all in place of its sends and receives, whose sizes are each member's own."""
        columns, rows = self.recording.columns, min(2 * call.nranks, len(self.recording))
        order = columns["order"][-rows]
        for column in columns.values():
            del column[-rows:]
        for pair in track.pair_calls:
            track.pair_calls[pair] -= 1
        track.exchanged, track.comm.calls = 0, track.comm.calls + 1
        types = (call.dtype,)
        kind = self.recording.kind(("all_to_all", "nccl", (), (), types, types, None, None, -1, None))
        self.recording.add(
            group=track.index,
            seq=track.comm.calls,
            kind=kind,
            state=State.UNKNOWN,
            created=created,
            order=order,
        )

    def tear(self, pointer: str | None) -> None:
        """Note that a COLL line was cut: the numbers of the calls after it are uncertain."""
        torn = self.live.get(pointer) if pointer else None
        for track in [torn] if torn else self.live.values():
            track.suspect = True

    def finish(self) -> None:
        """Settle what only the end shows: tears without a later call, names, the process's own facts."""
        for track in self.live.values():
            if track.suspect:
                track.comm.intact = False
        for comm in self.communicators:
            comm.version, comm.ip, comm.network = self.version, self.ip, self.network
        name_communicators(self.communicators)

    def recordings(self) -> list[Recording]:
        """Return the calls as one recording, or one per device where the process is several ranks."""
        ranks: dict[str, set[int | None]] = {}
        for comm in self.communicators:
            if comm.comm_id:
                ranks.setdefault(comm.comm_id, set()).add(comm.comm_rank)
        names = {comm.local_id: comm.name for comm in self.communicators}
        if all(len(seen) == 1 for seen in ranks.values()):
            return [self._whole(names)] if self.communicators else []
        lane_of = {c.local_id: c.bus_id or f"dev{c.cuda_dev}" for c in self.communicators}
        made: dict[str, Recording] = {}
        place: list[tuple[Recording, int]] = []
        for local_id, _, _ in self.recording.groups:
            recording = made.setdefault(lane_of[local_id], self._described(Recording("nccl_log")))
            place.append((recording, recording.group(local_id, names[local_id], "")))
            recording.config[names[local_id]] = ("", None)
        for row in range(len(self.recording)):
            recording, group = place[self.recording.columns["group"][row]]
            _copy(self.recording, row, recording, group)
        return [made[lane] for lane in sorted(made)]

    def _whole(self, names: dict[str, str]) -> Recording:
        """Return the recording as it is, with the names of its groups filled in."""
        self.recording.groups = [(local_id, names[local_id], "") for local_id, _, _ in self.recording.groups]
        self.recording.config = {name: ("", None) for _, name, _ in self.recording.groups}
        return self._described(self.recording)

    def _described(self, recording: Recording) -> Recording:
        recording.version, recording.rank = self.version, self.recording.rank
        recording.host, recording.pid = self.host or None, self.pid
        if self.trimmed:
            text = "only the last calls of this process were kept"
            recording.notes = [Note("history_trimmed", text, self.file)]
        return recording

    def _trim(self, keep: int) -> None:
        """Drop the oldest calls, and with them the kinds that only they used."""
        old = self.recording
        new = Recording("nccl_log", rank=old.rank)
        for group in old.groups:
            new.group(*group)
        for row in range(len(old) - keep, len(old)):
            _copy(old, row, new, old.columns["group"][row])
        for track in self.live.values():
            track.kinds.clear()
        self.recording, self.trimmed = new, True


def _copy(old: Recording, row: int, new: Recording, group: int) -> None:
    """Append one call of a recording to another one."""
    columns = old.columns
    new.add(
        group=group,
        seq=columns["seq"][row],
        kind=new.kind(old.kinds[columns["kind"][row]]),
        state=columns["state"][row],
        created=columns["created"][row],
        order=columns["order"][row],
    )


MAX_PROCESSES = 65_536  # bounds what a hostile file can make the parser keep


class Processes:
    """The processes of one input, in the order of their first lines.

    They are told apart by host and pid, and by the launcher's prefix for containers that share both.
    """

    def __init__(self) -> None:
        self._by_head: dict[tuple[str, str, int | None, str], Process] = {}
        self._by_pid: dict[int, list[Process]] = {}

    def __len__(self) -> int:
        return len(self._by_head)

    def __iter__(self) -> Iterator[Process]:
        return iter(self._by_head.values())

    @property
    def keep(self) -> int:
        """Return how many calls each of them may keep."""
        return max(calls.LEAST_KEPT, calls.CALL_BUDGET // (2 * max(1, len(self))))

    def of(self, message: NcclLine, line: Line) -> Process | None:
        """Return whose line this is; None for a line without a head among lines that have one."""
        if message.pid is None and self._by_pid:
            return None
        lane = f"dev{message.dev}" if message.pid is None and message.dev is not None else ""
        key = (line.origin, message.host, message.pid, lane)
        if message.pid is not None and key not in self._by_head:
            same = [p for p in self._by_pid.get(message.pid, ()) if _may_be(p, message, line)]
            if len(same) == 1:
                return same[0]
        process = self._by_head.get(key)
        if process is None and not message.inner and len(self) < MAX_PROCESSES:
            process = Process(line.file, message.host, message.pid, line.origin, lane, task=line.task)
            process.recording.rank = line.rank
            self._by_head[key] = process
            if message.pid is not None:
                self._by_pid.setdefault(message.pid, []).append(process)
        return process


def _may_be(process: Process, message: NcclLine, line: Line) -> bool:
    """Return whether a line of the same pid is a known process's, though its prefix or host differs."""
    if process.host == message.host:
        return message.truncated or not line.origin
    return joined_to_a_cut_head(message, process)


def joined_to_a_cut_head(message: NcclLine, process: Process) -> bool:
    """Return whether the host begins with the rest of another line: `node1:42node2:12:12 [0] NCCL INFO`."""
    joined = message.inner or message.before
    return bool(
        joined and process.host and message.host != process.host and message.host.endswith(process.host)
    )
