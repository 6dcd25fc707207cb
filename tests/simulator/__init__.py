"""A simulator of frozen distributed jobs: programs of ranks over groups, NCCL's completion rules, faults and
recorders.

`write_incident(folder, fault, seed, way=...)` writes what such a job leaves behind and somebody collects (dumps/,
truth.json); `simulate` stops before the files. Everything follows from the fault's name, the seed and the way.
"""

from __future__ import annotations

from .collecting import WAYS, collect, write_incident
from .faults import FAULTS
from .incident import Incident, simulate
from .job import Truth, Unsuitable
from .remains import Kept, Remains

#: Faults that no job of eight ranks shows.
_LARGER = frozenset({"other_order_in_pairs", "skipped_send"})


def least_size(fault: str) -> int:
    """Return the smallest number of ranks, a multiple of eight, whose jobs show a fault."""
    return 16 if fault in _LARGER else 8


__all__ = [
    "FAULTS",
    "WAYS",
    "Incident",
    "Kept",
    "Remains",
    "Truth",
    "Unsuitable",
    "collect",
    "least_size",
    "simulate",
    "write_incident",
]
