"""A simulator of frozen distributed jobs: programs of ranks over groups, NCCL's completion rules, faults and
recorders.

`write_incident(folder, fault, seed)` writes what such a job leaves behind (dumps/, truth.json); `simulate`
stops before the files. Everything follows from the fault's name and the seed.
"""

from __future__ import annotations

from .faults import FAULTS
from .incident import Incident, simulate, write_incident
from .job import Truth, Unsuitable

__all__ = ["FAULTS", "Incident", "Truth", "Unsuitable", "simulate", "write_incident"]
