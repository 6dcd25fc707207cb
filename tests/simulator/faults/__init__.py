"""What can be wrong with a simulated job, one file per family."""

from __future__ import annotations

from .catalog import FAULTS

__all__ = ["FAULTS"]
