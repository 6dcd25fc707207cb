"""How TORCH_DISTRIBUTED_DEBUG=DETAIL prints a call, and the decoding of a garbled peer.

    CollectiveFingerPrint(SequenceNumber=8, OpType=ALLREDUCE, TensorShape=[58], TensorDtypes=Float, TensorDeviceTypes=TensorOptions(...))
    CollectiveFingerPrint(SequenceNumber=8OpType=BARRIER)

(torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp; without SequenceNumber before 2.0.) When two
fingerprints have different lengths, the wrapper prints as the peer's *operation* what is the *length* of the
peer's fingerprint.
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.ingest.recorder.values import user_op
from hangscope.model.dataclass import dataclass
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


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One call. `number` is the wrapper's SequenceNumber (from 0); `shape` is that of the first tensor, None without tensors."""

    op: str
    op_type: str
    number: int | None
    shape: tuple[int, ...] | None
    dtypes: tuple[str, ...]
    device: str | None

    @property
    def seq(self) -> int | None:
        """Return the recorder's number of this call, which starts at 1; None where the counter began at random."""
        return None if self.number is None or self.number >= RANDOM_START else self.number + 1

    def fields(self) -> dict[str, Any]:
        """Return the call as fields of an event."""
        return {
            "seq": self.seq,
            "sequence_number": self.number,
            "op": self.op,
            "shape": self.shape,
            "dtype": " ".join(self.dtypes) or None,
            "device": self.device,
        }


def fingerprints(text: str) -> list[Fingerprint]:
    """Return every fingerprint in the text, in order."""
    found = []
    for match in _PRINT.finditer(text):
        number, op_type, shape, dtypes, device = match.groups()
        sizes = tuple(int(n) for n in re.findall(r"\d{1,15}", shape)) if shape is not None else None
        types, count = tuple(re.findall(r"\w+", dtypes or "")), int(number) if number else None
        found.append(Fingerprint(user_op(op_type), op_type, count, sizes, types, device))
    return found


def garbled_peer(own: Fingerprint, peer: Fingerprint) -> str | None:
    """Return what the peer's call really was, as far as its length shows, or None where what is printed of it can be trusted.

    The length is 3 + 3 per tensor + all dimensions, so 3 is a call without tensors (a barrier, an uneven
    all_to_all) and 6, 7, 8 one tensor of 0, 1, 2 dimensions.
    """
    if peer.shape is not None or peer.number not in {0, None} or peer.op_type not in OP_TYPES:
        return None
    length, bare = OP_TYPES.index(peer.op_type), own.shape is None
    if length < 6 and (bare or length != 3):
        return None  # equal lengths are compared properly; 4 and 5 are no lengths
    if bare and own.number == 0 and peer.op_type in _WITHOUT_TENSORS:
        return None
    if length == 3:
        return "a call without tensors (a barrier or the like)"
    dims = length - 6
    return f"a call with one {dims}-D tensor" + (" (or several smaller ones)" if dims >= 3 else "")


def differing_aspects(text: str) -> tuple[str, ...]:
    """Return which aspects the message says differ: sequence number, op, shapes, dtypes, devices."""
    _, _, tail = text.partition("Collectives differ in the following aspects:")
    return tuple(name for mark, name in _ASPECTS.items() if mark in tail)
