"""What reading one file answers: plain builtins, which cross from a child without a global to look up."""

from __future__ import annotations

from typing import Any

from hangscope.errors import Note
from hangscope.model.codec import to_row

#: {"kind", "status", "reason", "recordings", "events", "threads", "notes", "log", "nccl"}; the rows of `Recording`,
#: `Event` and `Note` as tuples
Wire = dict[str, Any]
#: a file in a pack: its name, its size in bytes and what it says
Part = tuple[str, int, Wire]


def answer(kind: str, status: str = "used", reason: str = "") -> Wire:
    """Return an answer that says nothing yet."""
    found: Wire = {name: [] for name in ("recordings", "events", "threads", "notes")}
    return {"kind": kind, "status": status, "reason": reason, **found, "log": None, "nccl": None}


def failed(kind: str, code: str, message: str, hint: str = "") -> Wire:
    """Return the answer for a file that could not be used."""
    return {
        **answer(kind, status="failed", reason=message),
        "notes": [to_row(Note(code, message, hint=hint))],
    }


def share(wire: Wire, known: dict[bytes, bytes]) -> None:
    """Keep one object for equal columns, and equal kinds of call, of the answers of one pack."""

    def kept(data: Any) -> Any:
        return known.setdefault(data, data) if isinstance(data, bytes) else data

    for recording in wire["recordings"]:
        recording["calls"] = kept(recording["calls"])
        recording["columns"] = {name: kept(column) for name, column in recording["columns"].items()}
