"""How far a call came."""

from __future__ import annotations

from enum import Enum


class State(int, Enum):
    """How far one rank's call is known to have come. On gloo a retired last call is UNKNOWN."""

    PENDING = 0
    STARTED = 1
    DONE = 2
    UNKNOWN = 3
