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

__all__ = [
    "FAULTS",
    "WAYS",
    "Incident",
    "Kept",
    "Remains",
    "Truth",
    "Unsuitable",
    "collect",
    "simulate",
    "write_incident",
]
