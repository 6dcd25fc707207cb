"""What the lines of a stack dump are: the header of a process or a thread, or a frame. Their forms are data, in knowledge/lines/stacks.toml."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from hangscope.ingest.stacks.threads import OpenThread, function_name
from hangscope.model.dataclass import dataclass
from hangscope.model.frames import Frame
from hangscope.model.regex import regex
from hangscope.model.tables import entries

SPY_PROCESS = regex(r"^Process (\d{1,9}): ")
WORKER = regex(r"^Process (\d{1,9}): worker of rank \d{1,7}\s*$")
_TRACEBACK_FRAME = regex(r'^  File ".{1,1000}?", line \d{1,9}, in .{1,300}$')


@dataclass(frozen=True, slots=True)
class Form:
    """One form of a thread's header or of a frame; the fields are described in the table."""

    pattern: re.Pattern[str]
    begins: bool = False
    outermost_first: bool = False
    known: bool = False


@cache
def forms(kind: str) -> Sequence[Form]:
    """Return the forms of a `thread` or a `frame`."""
    return [Form(**{**row, "pattern": regex(row["pattern"])}) for row in entries("lines/stacks.toml", kind)]


def is_of_an_error(text: str) -> bool:
    """Return whether a line is the header of a traceback, whose frames are those of an error."""
    return "Traceback (most recent call last)" in text


def begins_dump(text: str) -> bool:
    """Return whether a line begins what faulthandler, py-spy or pystack print of a thread, or py-spy of a process."""
    threads = any(form.begins and form.pattern.match(text) for form in forms("thread"))
    return threads or SPY_PROCESS.match(text) is not None


def is_frame(text: str) -> bool:
    """Return whether a line is a frame as faulthandler, py-spy or pystack print it."""
    return any(form.known and form.pattern.match(text) for form in forms("frame"))


def untitled(text: str, raised: bool) -> OpenThread | None:
    """Return the thread whose stack begins with a line that has no header, such as below a title; None where none does.

    `raised`: a traceback's own header came before, so that its frames are those of an error.
    """
    if _TRACEBACK_FRAME.match(text):
        return None if raised else OpenThread("", "", outermost_first=True)
    return OpenThread("", "") if is_frame(text) or text.startswith("#0 ") else None


def header(text: str) -> OpenThread | None:
    """Return the thread that a line begins."""
    for form in forms("thread"):
        if (match := form.pattern.match(text)) is not None:
            caught = match.groupdict()
            return OpenThread(
                caught["ident"],
                caught.get("name") or "",
                current=caught.get("which") == "Current thread",
                numbered_first=caught.get("which") == "1",
                outermost_first=form.outermost_first,
            )
    return None


def frame_of(text: str) -> Frame | None:
    """Return the frame that a line is."""
    for form in forms("frame"):
        if (match := form.pattern.search(text)) is not None:
            caught = match.groupdict()
            line = caught["line"] or ""
            name = caught["name"].strip() if "name" in caught else function_name(caught["qualified"])
            file = caught["file"] or caught.get("library") or ""
            return Frame(name, file, int(line) if line.isdigit() else 0)
    return None
