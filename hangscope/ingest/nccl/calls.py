"""COLL lines of NCCL and RCCL as a recorder: one Recording per process, a communicator per use of a pointer.

`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL` makes `ncclEnqueueCheck` (src/enqueue.cc) print one line per call,
the same from 2.3 to 2.30 (RCCL adds ` task N globalrank N`)::

    AllReduce: opCount 1f sendbuff 0x.. recvbuff 0x.. count 1024 datatype 7 op 0 root 0 comm 0x..
        [nranks=16] stream 0x..                                        (one line)

The line is printed when the CPU makes the call, before the launch, and never when it ends, so every state is
UNKNOWN. A call's number is its position among the COLL lines of its communicator in its process: `opCount`
counts kernel launches or groups, stays 0 on one node since 2.27, and differs between the ranks of one call.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from hangscope.errors import Note
from hangscope.incident import State
from hangscope.ingest.nccl.comm import Communicator, name_communicators
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import KindRow, Recording

#: How many calls all processes of one input may keep; the oldest of each process go first.
CALL_BUDGET = 1_000_000
LEAST_KEPT = 2_048
_STEADY_CALLS = 3

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\))"
_COLL = re.compile(
    rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER} "
    rf"(count (\d{{1,20}}) datatype (\d{{1,3}}) op \d{{1,10}} root (-?\d{{1,10}})) "
    rf"comm ({_POINTER}) \[nranks=(\d{{1,7}})\] stream {_POINTER}"
    r"(?: task -?\d{1,10} globalrank -?\d{1,7})?$"
)
#: The same as bytes, to its line feed: (operation, opCount, count to root, comm and nranks).
WHOLE_LINE = re.compile(
    (
        rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER} "
        rf"(count \d{{1,20}} datatype \d{{1,3}} op \d{{1,10}} root -?\d{{1,10}}) "
        rf"(comm {_POINTER} \[nranks=\d{{1,7}}\]) stream {_POINTER}(?: task -?\d{{1,10}} globalrank -?\d{{1,7}})?\n"
    ).encode()
)
_COLL_START = re.compile(r"[A-Z][A-Za-z]{2,23}: opCount ")
_COLL_COMM = re.compile(rf" comm ({_POINTER}) \[")

_OPS = {
    "AllReduce": "all_reduce",
    "AllGather": "all_gather",
    "AllGatherV": "all_gather",
    "ReduceScatter": "reduce_scatter",
    "Broadcast": "broadcast",
    "Reduce": "reduce",
    "Send": "send",
    "Recv": "recv",
    "AlltoAll": "all_to_all",
    "AllToAll": "all_to_all",
    "AllToAllv": "all_to_all",
    "AllToAllV": "all_to_all",
    "Gather": "gather",
    "Scatter": "scatter",
    "PutSignal": "put_signal",
    "Signal": "signal",
    "WaitSignal": "wait_signal",
}
_ROOTED = frozenset({"broadcast", "reduce", "gather", "scatter"})
_TO_PEER = frozenset({"send", "put_signal", "signal"})
_FROM_PEER = frozenset({"recv", "wait_signal"})
# ncclDataType_t, in torch's names for them.
_DTYPES = (
    "Char", "Byte", "Int", "UInt32", "Long", "UInt64",
    "Half", "Float", "Double", "BFloat16", "Float8_e4m3fn", "Float8_e5m2",
)  # fmt: skip


@dataclass(slots=True)
class CollLine:
    """One COLL line. `key` is its text from count to root; `root` is the peer of a send or recv."""

    op: str
    op_count: int
    key: str
    count: int
    dtype: str
    root: int
    pointer: str
    nranks: int

    @property
    def is_p2p(self) -> bool:
        """Whether it goes to or comes from one peer."""
        return self.op in _TO_PEER or self.op in _FROM_PEER


def parse_coll(message: str) -> CollLine | None:
    """Return the call in a COLL line, or None where the line is another or is not whole."""
    match = _COLL.match(message)
    if match is None:
        return None
    name, op_count, key, count, datatype, root, pointer, nranks = match.groups()
    if int(nranks) > MAX_RANKS:
        return None
    code = int(datatype)
    dtype = _DTYPES[code] if code < len(_DTYPES) else f"datatype {code}"
    return CollLine(user_op(name), int(op_count, 16), key, int(count), dtype, int(root), pointer, int(nranks))


def user_op(name: str) -> str:
    """Return the name that torch's users know for NCCL's name of an operation: all_reduce for AllReduce."""
    return _OPS.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def is_coll(message: str) -> bool:
    """Return whether a message begins like a COLL line, whole or not."""
    return _COLL_START.match(message) is not None


def torn_pointer(message: str) -> str | None:
    """Return the communicator pointer of a COLL line that is not whole, where it is still readable."""
    match = _COLL_COMM.search(message)
    return match.group(1) if match else None


@dataclass(slots=True)
class _Track:
    """A communicator and what counting its calls needs to know."""

    comm: Communicator
    index: int  # of its group in the recording
    suspect: bool = False
    last_op_count: int = -1
    steady: bool = True  # opCount went up by exactly one per call so far
    pair_calls: dict[tuple[bool, int], int] = field(default_factory=dict)
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
            track.comm.nranks = call.nranks
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
            kind = track.kinds[key] = self.recording.kind(_kind(call, comm))
        if call.is_p2p:
            pair = (call.op in _TO_PEER, call.root)
            seq = track.pair_calls[pair] = track.pair_calls.get(pair, 0) + 1
        else:
            seq = comm.calls = comm.calls + 1
        self.recording.add(
            group=track.index, seq=seq, kind=kind, state=State.UNKNOWN, created=created, order=self._order
        )
        self._order += 1
        if len(self.recording) > 2 * keep:
            self._trim(keep)

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


def _kind(call: CollLine, comm: Communicator) -> KindRow:
    """Return what a call is. AllGather prints what each rank sends, ReduceScatter what each rank receives."""
    here, there = (call.count,), (call.count * call.nranks,)
    received, sent = here, here
    if call.op in ("all_gather", "gather"):
        received = there
    elif call.op in ("reduce_scatter", "scatter", "all_to_all"):
        sent = there
        received = there if call.op == "all_to_all" else here
    src = dst = None
    me = -1 if comm.comm_rank is None else comm.comm_rank
    if call.op in _TO_PEER:
        src, dst = me, call.root
    elif call.op in _FROM_PEER:
        src, dst = call.root, me
    root = call.root if call.op in _ROOTED else None
    return (call.op, "nccl", (sent,), (received,), (call.dtype,), (call.dtype,), src, dst, -1, root)
