"""The last words of a process that C++ or the interpreter ended.

    terminate called after throwing an instance of 'c10::DistBackendError'
      what():  [PG ID 0 PG GUID 0(default_pg) Rank 3] ...

    Fatal Python error: Segmentation fault

    Current thread 0x00007f04cabffb80 (most recent call first):
      File "train.py", line 57 in load

(libstdc++; CPython Modules/faulthandler.c.)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field, replace

from hangscope.ingest.lines.forms import says
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line, quote
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

_WHAT_LINES = 4
_STACK_LINES = 400
_FRAMES_KEPT = 60

_TYPE = regex(r"throwing an instance of '(.{1,200}?)'")
_FATAL = regex(r"^Fatal Python error: .{1,200}")
_FRAME = regex(r'^\s{2}File "(.{1,1000}?)", line (\d{1,9}|\?\?\?) in (.{1,300})$')
_CURRENT = regex(r"^Current thread 0x[0-9a-fA-F]{1,16}")


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


@dataclass(slots=True)
class _Open:
    """A death whose details may still follow: `left` more lines are looked at."""

    first: Line
    what: str
    left: int
    kind: str | None = None
    in_stack: bool = False
    frames: list[Frame] = field(default_factory=list)


class AbortParser(LineParser):
    """Joins the lines of one death into one `terminate` event, with the Python frames where the interpreter prints them."""

    literals = (b"terminate called ", b"  what():  ", b"Fatal Python error: ")

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line; return the deaths that it completes."""
        text = line.text
        if "terminate called " in text:
            kind = _TYPE.search(text)
            what = (
                "without an active exception"
                if "without an active" in text
                else kind.group(1)
                if kind
                else "terminate"
            )
            done = self._end(line.origin)
            self._open[line.origin] = _Open(line, what, _WHAT_LINES, kind.group(1) if kind else None)
            return done
        if "what():  " in text:
            return self._what(line)
        if _FATAL.match(text):
            done = self._end(line.origin)
            self._open[line.origin] = _Open(line, quote(text, 200), _STACK_LINES)
            return done
        return self._more(line)

    def _what(self, line: Line) -> list[Event]:
        owner = line.origin if line.origin in self._open else None
        if owner is None and len(self._open) == 1:
            owner = next(iter(self._open))  # a prefix stands before the first line only
        opened = self._open.pop(owner) if owner is not None else _Open(line, "", 0)
        message = quote(line.text.split("what():  ", 1)[1])
        return [
            replace(opened.first, number=line.number, raw=line.raw).event(
                Terminate, what=message, type=opened.kind
            )
        ]

    def _more(self, line: Line) -> list[Event]:
        done: list[Event] = []
        opened = self._open.get(line.origin)
        if opened is not None and opened.left > _WHAT_LINES:
            frame = _FRAME.match(line.text)
            if _CURRENT.match(line.text):
                opened.in_stack = True
            elif opened.in_stack and frame and len(opened.frames) < _FRAMES_KEPT:
                opened.frames.append(
                    Frame(
                        frame.group(3), frame.group(1), int(frame.group(2)) if frame.group(2).isdigit() else 0
                    )
                )
            elif opened.in_stack:
                return self._end(line.origin)
        for name in list(self._open):
            self._open[name].left -= 1
            if self._open[name].left <= 0:
                done.extend(self._end(name))
        return done

    def _end(self, origin: str) -> list[Event]:
        opened = self._open.pop(origin, None)
        if opened is None:
            return []
        return [
            opened.first.event(Terminate, what=opened.what, type=opened.kind, frames=tuple(opened.frames))
        ]

    def close(self) -> Iterable[Event]:
        """Return those that the file ends in."""
        return [event for origin in list(self._open) for event in self._end(origin)]
