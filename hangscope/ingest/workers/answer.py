"""What reading one file answers: plain builtins, which cross from a child without a global to look up."""

from __future__ import annotations

from typing import Any

from hangscope.errors import Note
from hangscope.model.codec import to_row

#: {"kind", "status", "reason", "recordings", "events", "stacks", "notes", "log"}; the rows of `Event`, `ProcessStacks` and `Note` as tuples
Wire = dict[str, Any]
#: a file in a pack: its name, its size in bytes and what it says
Part = tuple[str, int, Wire]


def answer(kind: str, status: str = "used", reason: str = "") -> Wire:
    """Return an answer that says nothing yet."""
    found: Wire = {name: [] for name in ("recordings", "events", "stacks", "notes")}
    return {"kind": kind, "status": status, "reason": reason, **found, "log": None}


def failed(kind: str, code: str, message: str, hint: str = "") -> Wire:
    """Return the answer for a file that could not be used."""
    return {
        **answer(kind, status="failed", reason=message),
        "notes": [to_row(Note(code, message, hint=hint))],
    }
