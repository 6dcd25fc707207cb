"""One line that NCCL or RCCL printed, taken apart: who printed it, at what level, and the message.

The core of a line is the same from NCCL 2.4.8 to 2.30 (src/debug.cc, `ncclDebugLog`), with these additions
over time::

    node7:4242:4321 [3] NCCL INFO AllReduce: opCount 1f sendbuff ...               any version
    node7:4242:4321 [3] transport/net_ib.cc:1200 NCCL WARN NET/IB: Got ...         WARN names file and line
    [2026-01-02 03:04:05] node7:4242:4321 [3] misc/socket.cc:57 NCCL WARN ...    2.26.2: timestamps, local
    node7:4242:4321 [3] misc/socket.cc:57 (socketProgress) NCCL WARN ...         2.30.7: names the function
    node7:4242:4321 NCCL CALL ncclAllReduce(...)                                   2.13.4: no device

The host may be empty, numeric, or equal in different containers. Standard output through a pipe is neither
locked nor flushed since 2.13.4, so one line can begin inside another (torn): both parts are then marked
truncated.

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
from itertools import islice

from hangscope.ingest.lines.forms import integer
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.recorder.recording import KindRow
from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

#: What a line must contain to be worth parsing (`CCL version` is in NCCL's and RCCL's banner).
LITERALS: tuple[bytes, ...] = (b"NCCL INFO", b"NCCL WARN", b"NCCL ABORT", b"CCL version")

#: A pointer as NCCL prints it (`%p`).
POINTER = r"(?:0x[0-9a-fA-F]{1,16}|\(nil\))"

_MARKER = regex(r"NCCL (INFO|WARN|TRACE|CALL|ABORT)(?: |$)")
_HEAD = regex(
    r"(?:\[\d{4}-\d\d-\d\d[ T_]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]\s)?"
    r"(?<![A-Za-z0-9_.\-])(?P<host>[A-Za-z0-9_.\-]{0,255}):(?P<pid>\d{1,10}):\d{1,20}\s"
    r"(?:\[(?P<dev>-?\d{1,5})\]\s)?(?:\d{1,15}\.\d{1,9}\s)?"
    r"(?:[^\s:]{1,512}:\d{1,7}\s(?:\([^()]{0,128}\)\s)?)?$"
)
# An anonymised or stripped head: `node:XXXX [5] NCCL INFO`, `[5] NCCL INFO`, or nothing at all.
_BARE_HEAD = regex(
    r"(?:(?<![A-Za-z0-9_.\-])(?P<host>[A-Za-z0-9_.\-]{1,255}):\S{1,64}\s)?(?:\[(?P<dev>-?\d{1,5})\]\s)?"
    r"(?:[^\s:\[\]]{1,512}:\d{1,7}\s(?:\([^()]{0,128}\)\s)?)?$"
)
# The shape of nearly every line; what it matches, the patterns above would read the same.
_PLAIN = regex(r"([A-Za-z0-9_.\-]{0,255}):(\d{1,10}):\d{1,20} \[(-?\d{1,5})\] NCCL INFO ([^\n]*)$")
_VERSION = regex(r"(?P<lib>[NR])CCL version\s{0,8}:?\s{0,8}(?P<version>\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)")
_MARKERS = 8  # in a line; nothing of one that is torn more often is complete
_HEAD_WINDOW = 1200  # the prefix that NCCL formats is at most 1,024 bytes


@dataclass(slots=True)
class NcclLine:
    """One message of one process. `pid` is None where the head was stripped or anonymised.

    `dev` is the current device of the *calling thread* (proxy and network threads often say 0), `before` the
    text in front of the head. `truncated`: another line begins inside this one, or it began inside another;
    nothing may be counted from it. `inner`: it began inside another, so letters of that one may stand at the
    front of `host`.
    """

    level: str
    message: str
    host: str = ""
    pid: int | None = None
    dev: int | None = None
    before: str = ""
    truncated: bool = False
    inner: bool = False


def parse_line(text: str) -> list[NcclLine]:
    """Return the messages in one line of text: none, one, or several where lines are torn into each other."""
    plain = _PLAIN.match(text)
    if plain is not None and "NCCL " not in plain[4]:
        host, pid, dev, message = plain.groups()
        return [NcclLine("INFO", message.rstrip(), host, int(pid), int(dev))]
    heads: list[tuple[dict[str, str | None], int, re.Match[str]]] = []
    for marker in islice(_MARKER.finditer(text), _MARKERS):
        fields, start = _head(text, heads[-1][2].end() if heads else 0, marker)
        # a message may quote the words without a complete head
        if not heads or fields.get("pid") is not None:
            heads.append((fields, start, marker))
    ends = [start for _, start, _ in heads[1:]] + [len(text)]
    return [
        NcclLine(
            level=marker[1],
            message=text[marker.end() : end].rstrip(),
            host=fields.get("host") or "",
            pid=integer(fields.get("pid")),
            dev=integer(fields.get("dev")),
            before="" if nth else text[max(0, start - _HEAD_WINDOW) : start],
            truncated=len(heads) > 1,
            inner=nth > 0,
        )
        for nth, ((fields, start, marker), end) in enumerate(zip(heads, ends, strict=False))
    ]


def banner_version(text: str) -> str | None:
    """Return the version in a banner: `2.21.5`, or for RCCL `rccl 2.22.3`; None for other lines."""
    match = _VERSION.search(text)
    return ("rccl " if match["lib"] == "R" else "") + match["version"] if match is not None else None


def _head(text: str, floor: int, marker: re.Match[str]) -> tuple[dict[str, str | None], int]:
    """Return the fields of the head that ends at a marker, and where it begins, not before `floor`."""
    begin = max(floor, marker.start() - _HEAD_WINDOW)
    match = _HEAD.search(text, begin, marker.start()) or _BARE_HEAD.search(text, begin, marker.start())
    return (match.groupdict(), match.start()) if match is not None else ({}, marker.start())


_FORM = (
    rf"([A-Z][A-Za-z]{{2,23}}): opCount ([0-9a-f]{{1,16}}) sendbuff {POINTER} recvbuff {POINTER} "
    rf"(count (\d{{1,20}}) datatype (\d{{1,3}}) op \d{{1,10}} root (-?\d{{1,10}})) "
    rf"comm ({POINTER}) \[nranks=(\d{{1,7}})\] stream {POINTER}(?: task -?\d{{1,10}} globalrank (-?\d{{1,7}}))?"
)
_COLL = regex(f"{_FORM}$")
INFO = b" NCCL INFO "
#: The same as bytes, from `INFO` to its line feed.
WHOLE_LINE = regex(INFO + _FORM.encode() + rb"\n")
#: a message that begins like a COLL line, with the communicator's pointer where it is readable
DAMAGED_COLL = regex(rf"[A-Z][A-Za-z]{{2,23}}: opCount (?:.{{0,1000}}? comm ({POINTER}) \[)?")

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
    """One COLL line. `key` is its text from count to root; `root` is the peer of a P2P op, and `to_peer` is None for others.

    `rank` is the caller's in the communicator, which RCCL alone prints, as `globalrank` (ROCm/rccl src/enqueue.cc: localRankToRank).
    """

    op: str
    op_count: int
    key: str
    count: int
    dtype: str
    root: int
    pointer: str
    nranks: int
    to_peer: bool | None = None
    rank: int | None = None

    @classmethod
    def of(cls, groups: Sequence[str | None]) -> CollLine | None:
        """Return the call that the groups of a line's pattern state; None where no job has so many ranks."""
        *stated, printed = groups
        name, op_count, key, count, datatype, root, pointer, nranks = (text or "" for text in stated)
        if int(nranks) > MAX_RANKS:
            return None
        rank = int(printed) if printed and 0 <= int(printed) < int(nranks) else None
        code, op = int(datatype), user_op(name)
        dtype = _DTYPES[code] if code < len(_DTYPES) else f"datatype {code}"
        to_peer = True if op in _TO_PEER else False if op in _FROM_PEER else None
        size = int(nranks)
        return cls(op, int(op_count, 16), key, int(count), dtype, int(root), pointer, size, to_peer, rank)

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
