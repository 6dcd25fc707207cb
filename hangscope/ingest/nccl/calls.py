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

from hangscope.ingest.nccl.comm import Communicator
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import KindRow
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

#: How many calls all processes of one input may keep; the oldest of each process go first.
CALL_BUDGET = 1_000_000
LEAST_KEPT = 2_048

_POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\))"
_COLL = regex(
    rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER} "
    rf"(count (\d{{1,20}}) datatype (\d{{1,3}}) op \d{{1,10}} root (-?\d{{1,10}})) "
    rf"comm ({_POINTER}) \[nranks=(\d{{1,7}})\] stream {_POINTER}"
    r"(?: task -?\d{1,10} globalrank -?\d{1,7})?$"
)
#: The same as bytes, to its line feed: (operation, opCount, count to root, comm and nranks).
WHOLE_LINE = regex(
    (
        rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {_POINTER} recvbuff {_POINTER} "
        rf"(count \d{{1,20}} datatype \d{{1,3}} op \d{{1,10}} root -?\d{{1,10}}) "
        rf"(comm {_POINTER} \[nranks=\d{{1,7}}\]) stream {_POINTER}(?: task -?\d{{1,10}} globalrank -?\d{{1,7}})?\n"
    ).encode()
)
_COLL_START = regex(r"[A-Z][A-Za-z]{2,23}: opCount ")
_COLL_COMM = regex(rf" comm ({_POINTER}) \[")

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
        return self.to_peer or self.op in _FROM_PEER

    @property
    def to_peer(self) -> bool:
        """Whether it goes to one peer."""
        return self.op in _TO_PEER


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


def kind_of(call: CollLine, comm: Communicator) -> KindRow:
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
    if call.to_peer:
        src, dst = me, call.root
    elif call.op in _FROM_PEER:
        src, dst = call.root, me
    root = call.root if call.op in _ROOTED else None
    return (call.op, "nccl", (sent,), (received,), (call.dtype,), (call.dtype,), src, dst, -1, root)
