"""What reading one file answers: plain builtins, which cross from a child without a global to look up."""

from __future__ import annotations

from typing import Any

#: {"kind", "status", "reason", "recordings", "events", "threads", "notes", "log", "nccl"}; the rows of `Recording`,
#: `Event` and `Note` as tuples
Wire = dict[str, Any]


def answer(kind: str, status: str = "used", reason: str = "") -> Wire:
    """Return an answer that says nothing yet."""
    return {
        "kind": kind,
        "status": status,
        "reason": reason,
        "recordings": [],
        "events": [],
        "threads": [],
        "notes": [],
        "log": None,
        "nccl": None,
    }


def failed(kind: str, code: str, message: str, hint: str = "") -> Wire:
    """Return the answer for a file that could not be used."""
    return {**answer(kind, status="failed", reason=message), "notes": [(code, message, None, None, hint)]}
