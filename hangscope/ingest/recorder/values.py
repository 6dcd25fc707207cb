"""Single values of a recorder's dump in this project's form: numbers, text, states, sizes, and the names of calls.

A dump may hold anything in any place, so nothing here raises.
"""

from __future__ import annotations

import marshal
from sys import intern
from typing import Any, TypeAlias, TypeVar

from hangscope.model.incident import State
from hangscope.model.regex import regex

_P2P_NAME = regex(r"^(send|recv|isend|irecv)\s+(\d{1,9}|\?)\s*(->|<-)\s*(\d{1,9}|\?)$")
LIMIT = 2**62  # numbers of a dump are smaller
_T = TypeVar("_T")
#: record_id, collective_seq_id, p2p_seq_id and time_created_ns of an entry
Numbers: TypeAlias = tuple[int, int, int, int]
TENSORS_PER_CALL = 65_536  # an all_to_all has one of each rank
DIMS_PER_TENSOR = 64  # torch allows no more
TYPE_LENGTH = 100
NUMBERS_PER_DUMP = 2**20  # in the shapes and types of all different calls
STATES = {"scheduled": State.PENDING, "started": State.STARTED, "completed": State.DONE}

# What users call an op whose recorder name, without a leading "_" and the end "_coalesced", is torch's internal one.
_USER_NAMES = {
    "all_gather_base": "all_gather_into_tensor",
    "allgather_base": "all_gather_into_tensor",
    "allgather_into_tensor": "all_gather_into_tensor",
    "reduce_scatter_base": "reduce_scatter_tensor",
    "all_reduce_barrier": "barrier",
    "broadcast_oop": "broadcast",
    "reduce_oop": "reduce",
    "allgather": "all_gather",
    "allreduce": "all_reduce",
    "allreduce_sparse": "all_reduce",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all",
    "all_to_all_single": "all_to_all",
    "isend": "send",
    "irecv": "recv",
    "recvanysource": "recv_any_source",  # as the enum of ops prints it in logs (torch/csrc/distributed/c10d/Work.cpp)
}


def user_op(name: str) -> str:
    """Return the name that users know for a recorder name without its backend prefix, or for one that a log prints: ALLREDUCE."""
    plain = name.lower().removeprefix("_").removesuffix("_coalesced")
    return _USER_NAMES.get(plain, plain)


def as_desc(value: Any) -> str:
    """Return a group's description; torch writes "undefined" for none."""
    return "" if value in (None, "undefined") else as_text(value)


def as_group(value: Any) -> tuple[str, str]:
    """Return name and description of an entry's `process_group`, empty where it has none."""
    parts = value if isinstance(value, (list, tuple)) else ()
    return as_text(parts[0]) if parts else "", as_desc(parts[1]) if len(parts) > 1 else ""


def as_text(value: Any) -> str:
    """Return a value as text that can be written: a lone surrogate, which only a forged dump holds, becomes `?`."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def as_int(value: Any, default: int = 0) -> int:
    """Return a whole number that fits a column, or the default."""
    if type(value) is int:  # all but a few values: JSON has numbers as strings, hostile files have anything
        return value if -LIMIT < value < LIMIT else default
    if isinstance(value, str):
        try:
            return as_int(int(value), default)
        except ValueError:
            return default
    if not isinstance(value, float) or value != value:
        return default
    return int(value) if abs(value) < LIMIT else default


def short_number(text: str) -> int | None:
    """Return the number that a name is, None where it is none: `²` is a digit to Python, and 5,000 of them no number."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 18 else None


def as_key(value: Any) -> bytes | str:
    """Return a hashable form of plain nested containers, equal for equal values."""
    try:
        # version 2 has no references, which would depend on how objects are shared
        return marshal.dumps(value, 2)
    except ValueError:  # nested too deeply
        return repr(value)


def p2p_sides(op: str) -> tuple[str, int, int]:
    """Return (send or recv, source, destination) of `send 0->1` or `recv 0<-8`; -1 is an unknown side (`recv 0<-?`)."""
    match = _P2P_NAME.match(op)
    if match is None:
        return op.split(" ", 1)[0], -1, -1
    word, left, arrow, right = match.groups()
    a, b = (-1 if n == "?" else int(n) for n in (left, right))
    return word, *((a, b) if arrow == "->" else (b, a))


class Tensors:
    """Shapes and element types of calls, no more of them than a job's dump holds.

    A list that a pickle shares costs its file two bytes for each further use, and whoever reads the dump all of it.
    """

    def __init__(self) -> None:
        self._left = NUMBERS_PER_DUMP
        self.cut = 0  # calls of which not all is kept

    def sizes(self, raw: Any) -> tuple[tuple[int, ...], ...]:
        """Return the shapes of a call's tensors."""
        if not isinstance(raw, list):
            return ()
        shapes = []
        whole = len(raw) <= TENSORS_PER_CALL
        for shape in raw[:TENSORS_PER_CALL]:
            if isinstance(shape, (list, tuple)):
                whole = whole and len(shape) <= DIMS_PER_TENSOR
                shapes.append(tuple(as_int(n) for n in shape[:DIMS_PER_TENSOR]))
        return self._kept(tuple(shapes), sum(map(len, shapes)) + len(shapes), whole)

    def room(self, count: int) -> bool:
        """Take room for so many numbers of shapes, where there is as much."""
        fits = count <= self._left
        self._left -= count if fits else 0
        return fits

    def types(self, raw: Any) -> tuple[str, ...]:
        """Return the element types of a call's tensors."""
        if not isinstance(raw, list):
            return ()
        types = tuple(intern(as_text(t)[:TYPE_LENGTH]) for t in raw[:TENSORS_PER_CALL])
        return self._kept(types, len(types), len(raw) <= TENSORS_PER_CALL)

    def _kept(self, values: tuple[_T, ...], count: int, whole: bool) -> tuple[_T, ...]:
        fits = self.room(count)
        self.cut += not (whole and fits)
        return values if fits else ()
