"""The last message of a process that C++ or the interpreter terminated.

    terminate called after throwing an instance of 'c10::DistBackendError'
      what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] ...

    Fatal Python error: Segmentation fault

    Current thread 0x00007f04cabffb80 (most recent call first):
      File "train.py", line 57 in load

(libstdc++; CPython Modules/faulthandler.c.)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.prefixes import quote
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

_FRAMES = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminate(Event, same_by=("what",)):
    """C++'s `terminate called …` / `what():`, or the interpreter's `Fatal Python error` with the frames of its current thread."""

    what: str
    type: str | None = None
    frames: Stack = ()
    forms = (
        says(r"(?P<what>\*\*\* SIGSEGV.{0,100})", literal="*** SIGSEGV"),
        # UCX, which NCCL's plugins and MPI bring along
        says(
            r"\[[\w.-]{1,253}:(?P<pid>\d{1,9}) {0,3}:\d{1,9}:\d{1,9}\] (?P<what>Caught signal \d{1,2} \([\w :]{3,80})",
            literal="Caught signal ",
        ),
        says(r"^(?P<what>Segmentation fault \(core dumped\))", literal="Segmentation fault (core dumped)"),
    )


def _terminated(found: Found) -> Iterator[Event]:
    """Yield the death at the line of its message, by the writer of its first line."""
    where, message = found.first, found.last("message")
    kind = found.last("type")
    what = kind or ("without an active exception" if "without an active" in where.text else "terminate")
    if message is not None:
        last = found.parts[-1][0]
        where, what = replace(where, number=last.number, raw=last.raw), quote(message)
    yield where.event(Terminate, what=what, type=kind)


def _fatal(found: Found) -> Iterator[Event]:
    """Yield the death with the frames of the thread that it happened in."""
    frames: list[Frame] | None = None
    for _, match in found.parts[1:]:
        caught = match.groupdict()
        if "thread" in caught:
            if frames:
                break
            frames = [] if match["thread"] == "Current thread" else None
        elif frames is not None:
            line = match["line"]
            frames.append(Frame(match["name"], match["file"], int(line) if line.isdigit() else 0))
    what = quote(found.last("what") or "", 200)
    yield found.first.event(Terminate, what=what, frames=tuple(frames or ())[:_FRAMES])


MESSAGE = block(
    says(r"terminate called (?:.{0,40}?throwing an instance of '(?P<type>.{1,200}?)')?"),
    says(r"  what\(\):  "),
    ends=regex(r"what\(\):  (?P<message>.*)"),
    lines=4,
    made=_terminated,
)
STACK = block(
    says(r"^(?P<what>Fatal Python error: .{1,200})", literal="Fatal Python error: "),
    regex(r"^(?P<thread>Current thread|Thread) 0x[0-9a-fA-F]{1,16}"),
    regex(r'^\s{2}File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.{1,300})$'),
    lines=400,
    made=_fatal,
)
