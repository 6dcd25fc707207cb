"""What DETAIL's wrapper, gloo and the monitored barrier print when calls do not match or a peer is missing.

    RuntimeError: Detected mismatch between collectives on ranks. Rank 0 is running collective: CollectiveFingerPrint(...),
        but Rank 2 is running collective: CollectiveFingerPrint(...).Collectives differ in the following aspects: ...
    [Rank 0]: Ranks 1, 3 failed to pass monitoredBarrier in 8000 ms

(torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp, ProcessGroupGloo.cpp; gloo/transport/tcp.) All ranks are
local to their group. Of a mismatch only a rank's *own* call is taken as fact. gloo's timeouts and closed
connections are symptoms.

TORCH_DISTRIBUTED_DEBUG=DETAIL prints a call as a fingerprint:

    CollectiveFingerPrint(SequenceNumber=8, OpType=ALLREDUCE, TensorShape=[58], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(...))
    CollectiveFingerPrint(SequenceNumber=8OpType=BARRIER)

(torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp; without SequenceNumber before 2.0.) When two
fingerprints have different lengths, the wrapper prints as the peer's *operation* what is the *length* of the
peer's fingerprint.
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.c10d import GroupEvent
from hangscope.model.events import Event
from hangscope.model.regex import regex

# torch/csrc/distributed/c10d/Types and Work.cpp (`opTypeToString`), in the order of the enum `OpType`.
OP_TYPES = (
    "BROADCAST", "ALLREDUCE", "ALLREDUCE_COALESCED", "REDUCE", "ALLGATHER", "_ALLGATHER_BASE", "ALLGATHER_COALESCED", "GATHER",
    "SCATTER", "REDUCE_SCATTER", "ALLTOALL_BASE", "ALLTOALL", "SEND", "RECV", "RECVANYSOURCE", "BARRIER", "_REDUCE_SCATTER_BASE",
    "COALESCED", "_ALLREDUCE_SPARSE",
)  # fmt: skip
_WITHOUT_TENSORS = frozenset({"ALLGATHER_COALESCED", "ALLTOALL", "ALLTOALL_BASE", "BARRIER"})
_ASPECTS = {
    "Sequence number:": "sequence number",
    "Op type:": "op",
    "Tensor shapes:": "shapes",
    "Tensor dtypes:": "dtypes",
    "Tensor devices:": "devices",
}
RANDOM_START = 10_000_000  # gloo counted from a random number before 2.1; such a number joins nothing

_PRINT = regex(
    r"CollectiveFingerPrint\((?:SequenceNumber=(\d{1,19}))?(?:, )?OpType=([A-Z_]{1,60})(?=[,)])"
    r"(?:, TensorShape=\[([\d, ]{0,400})\])?"
    r"(?:, TensorDtypes=([\w ,\[\]]{0,400}?), TensorDeviceTypes=(?:.{0,90}?\bdevice=([a-z]{2,20}))?)?"
)


#: a call as fields of `CallFingerprint`, and the operation as printed
Print = tuple[dict[str, Any], str]


def fingerprints(text: str) -> list[Print]:
    """Return every fingerprint in the text, in order. `shape` is that of the first tensor, None without tensors."""
    found = []
    for match in _PRINT.finditer(text):
        number, op_type, shape, dtypes, device = match.groups()
        count = int(number) if number else None
        fields = {
            "seq": None
            if count is None or count >= RANDOM_START
            else count + 1,  # the recorder's starts at 1
            "sequence_number": count,
            "op": user_op(op_type),
            "shape": tuple(int(n) for n in re.findall(r"\d{1,15}", shape)) if shape is not None else None,
            "dtype": " ".join(re.findall(r"\w+", dtypes or "")) or None,
            "device": device,
        }
        found.append((fields, op_type))
    return found


def garbled_peer(own: Print, peer: Print) -> str | None:
    """Return what the peer's call really was, as far as its length shows, or None where what is printed of it can be trusted.

    The length is 3 + 3 per tensor + all dimensions, so 3 is a call without tensors (a barrier, an uneven
    all_to_all) and 6, 7, 8 one tensor of 0, 1, 2 dimensions.
    """
    (mine, _), (other, op_type) = own, peer
    if other["shape"] is not None or other["sequence_number"] not in {0, None} or op_type not in OP_TYPES:
        return None
    length, bare = OP_TYPES.index(op_type), mine["shape"] is None
    if length < 6 and (bare or length != 3):
        return None  # equal lengths are compared properly; 4 and 5 are no lengths
    if bare and mine["sequence_number"] == 0 and op_type in _WITHOUT_TENSORS:
        return None
    if length == 3:
        return "a call without tensors (a barrier or the like)"
    dims = length - 6
    return f"a call with one {dims}-D tensor" + (" (or several smaller ones)" if dims >= 3 else "")


_PEER_ADDRESS = regex(r"\[(?P<peer>[\w.:%]{2,64})\]:\d{1,5}")


def _mismatch(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    other = re.search(r", but Rank (\d{1,7}) is running", line.text)
    until = other.start() if other else len(line.text)
    own, peer = (fingerprints(part)[:1] for part in (line.text[match.start() : until], line.text[until:]))
    if not own:
        return None  # it is damaged
    fields = {"group_rank": int(match[1]), **own[0][0]}
    if other is not None:
        fields["peer_group_rank"] = int(other[1])
    if peer and (garbled := garbled_peer(own[0], peer[0])):
        return {**fields, "peer_op": garbled, "garbled": True}
    if peer:
        fields |= {f"peer_{name}": peer[0][0][name] for name in ("op", "shape", "dtype")}
    _, _, tail = line.text.partition("Collectives differ in the following aspects:")
    return {**fields, "aspects": tuple(name for mark, name in _ASPECTS.items() if mark in tail)}


def _barrier_error(line: Line, match: re.Match[str]) -> dict[str, Any] | None:
    return next((fields for fields, _ in fingerprints(line.text[match.start() :])), None)


class CallFingerprint(
    GroupEvent,
    kind="fingerprint",
    same_by=("context", "sequence_number", "op"),
    prints_group_rank=True,
    rank_fields=("peer_group_rank",),
):
    """A rank's *own call* in a DETAIL mismatch, or in "encountered error running collective" (`context` mismatch or barrier_error).

    `seq` is the recorder's number, `sequence_number` the printed one. Where it is `garbled`, `peer_op` is what the
    peer's length means, in words; `aspects` are what the message says differs, of sequence number, op, shapes, dtypes, devices.
    """

    op: str
    context: str
    seq: int | None = None
    sequence_number: int | None = None
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    device: str | None = None
    peer_group_rank: int | None = None
    peer_op: str | None = None
    peer_shape: tuple[int, ...] | None = None
    peer_dtype: str | None = None
    garbled: bool = False
    aspects: tuple[str, ...] = ()
    forms = (
        says(
            r"Rank (\d{1,7}) is running (?:collective|inconsistent collective): ",
            literal="Detected mismatch between collectives on ranks",
            read=_mismatch,
            context="mismatch",
        ),
        says(r"Rank (\d{1,7}) is running inconsistent collective: ", read=_mismatch, context="mismatch"),
        says("encountered error running collective: ", read=_barrier_error, context="barrier_error"),
    )


class MonitoredBarrier(
    GroupEvent, same_by=("absent", "what"), prints_group_rank=True, rank_fields=("absent",)
):
    """The line "Ranks 1, 3 failed to pass monitoredBarrier": `absent` is group-local.

    `what` is none_passed or timed_out where nobody is listed.
    """

    absent: tuple[int, ...] = ()
    what: str | None = None
    forms = (
        says(r"Ranks? (?P<absent>\d{1,7}(?:, ?\d{1,7}){0,70000}) failed to pass monitoredBarrier"),
        says("No ranks successfully processed in monitoredBarrier", what="none_passed"),
        says(
            r"Rank (?P<group_rank>\d{1,7}) timed out in monitoredBarrier after \d{1,18} ?ms", what="timed_out"
        ),
    )


class MonitoredBarrierWitness(Event, same_by=("from_group_rank",), prints_group_rank=True):
    """The line "successfully reached monitoredBarrier, but received errors": an innocent witness."""

    from_group_rank: int
    forms = (
        says(
            r"Rank (?P<group_rank>\d{1,7}) successfully reached monitoredBarrier, but received errors while waiting"
            r" .{0,40}?from rank (?P<from_group_rank>\d{1,7})"
        ),
    )


class GlooTimeout(Event, same_by=("what",)):
    """gloo waited for a send or a recv until its timeout; a symptom. `peer` is an address: it names a host, no rank."""

    peer: str | None = None
    what: str | None = None
    ran_ms: int | None = None
    forms = (
        says(r"Timed out waiting (?P<ran_ms>\d{1,18}) ?ms for (?P<what>recv|send) operation to complete"),
    )
    also = (_PEER_ADDRESS,)


class GlooClosed(Event, same_by=("what", "peer")):
    """gloo lost a connection; a symptom. `peer` is an address: it names a host, no rank."""

    peer: str | None = None
    what: str | None = None
    forms = (
        says(r"Connection closed by peer \[", what="Connection closed by peer"),
        says(r"(?:Read|Write) error .{0,80}?: Connection reset by peer", what="Connection reset by peer"),
        says(r"(?:Read|Write) error .{0,80}?: Connection timed out", what="Connection timed out"),
        says("Application timeout caused pair closure", what="Application timeout caused pair closure"),
    )
    also = (_PEER_ADDRESS,)


class GlooSizeMismatch(Event, same_by=("received", "expected")):
    """`op.preamble.length <= op.nbytes`: a peer sent another size than this rank expects (bytes)."""

    received: int
    expected: int
    forms = (says(r"op\.preamble\.length <= op\.nbytes\.? (?P<received>\d{1,18}) vs (?P<expected>\d{1,18})"),)
