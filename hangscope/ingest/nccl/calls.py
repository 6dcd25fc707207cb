"""COLL lines of NCCL and RCCL as a recorder: one Recording per process, a communicator per use of a pointer.

`NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=COLL` makes `ncclEnqueueCheck` (src/enqueue.cc) print one line per call,
the same from 2.3 to 2.30 (RCCL adds ` task N globalrank N`)::

    AllReduce: opCount 1f sendbuff 0x.. recvbuff 0x.. count 1024 datatype 7 op 0 root 0 comm 0x..
        [nranks=16] stream 0x..                                        (one line)

The line is printed when the CPU issues the call, before the launch, and never when it completes, so every state is
UNKNOWN. A call's number is its position among the COLL lines of its communicator in its process: `opCount`
counts kernel launches or groups, stays 0 on one node since 2.27, and differs between the ranks of one call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from hangscope.ingest.nccl.line import POINTER
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import KindRow
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

_FORM = (
    rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {POINTER} recvbuff {POINTER} "
    rf"(count (\d{{1,20}}) datatype (\d{{1,3}}) op \d{{1,10}} root (-?\d{{1,10}})) "
    rf"comm ({POINTER}) \[nranks=(\d{{1,7}})\] stream {POINTER}(?: task -?\d{{1,10}} globalrank -?\d{{1,7}})?"
)
_COLL = regex(f"{_FORM}$")
INFO = b" NCCL INFO "
#: The same as bytes, from `INFO` to its line feed.
WHOLE_LINE = regex(INFO + _FORM.encode() + rb"\n")
_START = regex(rf"[A-Z][A-Za-z]{{2,23}}: opCount (?:.{{0,1000}}? comm ({POINTER}) \[)?")

#: The names that are not torch's name in camel case.
_OPS = {
    "AllGatherV": "all_gather",
    "AlltoAll": "all_to_all",
    "AllToAllv": "all_to_all",
    "AllToAllV": "all_to_all",
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
    """One COLL line. `key` is its text from count to root; `root` is the peer of a P2P op, and `to_peer` is None for others."""

    op: str
    op_count: int
    key: str
    count: int
    dtype: str
    root: int
    pointer: str
    nranks: int
    to_peer: bool | None = None

    @classmethod
    def of(cls, groups: Sequence[str]) -> CollLine | None:
        """Return the call that the groups of a line's pattern state; None where no job has so many ranks."""
        name, op_count, key, count, datatype, root, pointer, nranks = groups
        if int(nranks) > MAX_RANKS:
            return None
        code, op = int(datatype), user_op(name)
        dtype = _DTYPES[code] if code < len(_DTYPES) else f"datatype {code}"
        to_peer = True if op in _TO_PEER else False if op in _FROM_PEER else None
        return cls(op, int(op_count, 16), key, int(count), dtype, int(root), pointer, int(nranks), to_peer)

    def kind(self, rank: int | None) -> KindRow:
        """Return what the call of a rank is. AllGather prints what each rank sends, ReduceScatter what each rank receives."""
        sent = received = (self.count,)
        if self.op in ("all_gather", "gather", "all_to_all"):
            received = (self.count * self.nranks,)
        if self.op in ("reduce_scatter", "scatter", "all_to_all"):
            sent = (self.count * self.nranks,)
        me = -1 if rank is None else rank
        peers = (None, None) if self.to_peer is None else (me, self.root) if self.to_peer else (self.root, me)
        root = self.root if self.op in _ROOTED else None
        return (self.op, "nccl", (sent,), (received,), (self.dtype,), (self.dtype,), *peers, -1, root)


def parse_coll(message: str) -> CollLine | None:
    """Return the call in a COLL line, or None where the line is another or is incomplete."""
    match = _COLL.match(message)
    return CollLine.of(match.groups()) if match is not None else None


@lru_cache(256)
def user_op(name: str) -> str:
    """Return the name that torch's users know for NCCL's name of an operation: all_reduce for AllReduce."""
    return _OPS.get(name) or re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def damaged_coll(message: str) -> re.Match[str] | None:
    """Return the match of a message that begins like a COLL line, with the communicator's pointer where it is readable."""
    return _START.match(message)
