"""What the lines of a stack dump are: the header of a process or a thread, or a frame, as each tool prints it."""

from __future__ import annotations

from hangscope.ingest.stacks.threads import OpenThread, function_name
from hangscope.model.frames import Frame
from hangscope.model.regex import regex

#: what a thread begins with; the groups are those of `header`, the options what the form implies
_FAULT_THREAD = regex(
    r"^(?P<which>Current thread|Thread) (?P<ident>0x[0-9a-fA-F]{1,16})(?: \[(?P<name>[^\]]{0,80})\])? "
    r"\(most recent call first\):\s*$"
)
_SPY_THREAD = regex(
    r'^Thread (?P<ident>0x[0-9A-Fa-f]{1,16}|\d{1,19}) \([a-z+]{1,30}\)(?:: "(?P<name>.{0,200})")?\s*$'
)
_PLAIN_THREAD = regex(r"^# Thread (?P<ident>\d{1,19})\s*$")
_GDB_THREAD = regex(
    r"^Thread (?P<which>\d{1,7}) \((?:Thread 0x[0-9a-f]{1,16} )?\(?LWP (?P<ident>\d{1,9})\)?\)?"
    r'(?: ?"(?P<name>[^"]{0,80})")?.{0,40}:\s*$'
)
#: pystack (bloomberg.github.io/pystack): `Traceback for thread 812 (python) [Has the GIL] (most recent call last):`
_PYSTACK_THREAD = regex(
    r"^Traceback for thread (?P<ident>\d{1,19})(?: \((?P<name>[^()]{0,80})\))? \[[^\]]{0,80}\] \(most recent call last\):\s*$"
)
_THREADS = (_FAULT_THREAD, _SPY_THREAD, _PLAIN_THREAD, _GDB_THREAD, _PYSTACK_THREAD)
SPY_PROCESS = regex(r"^Process (\d{1,9}): ")
WORKER = regex(r"^Process (\d{1,9}): worker of rank \d{1,7}\s*$")
_FAULT_FRAME = regex(
    r'^\s{1,4}File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}|\?\?\?) in (?P<name>.{1,300})$'
)
_PYSTACK_FRAME = regex(
    r'^\s{4}\((?:Python|C)\) File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}), in (?P<name>[^()]{1,300}?)(?: \([^()]{0,300}\))?\s*$'
)
_TRACEBACK_FRAME = regex(r'^\s{2}File "(?P<file>.{1,1000}?)", line (?P<line>\d{1,9}), in (?P<name>.{1,300})$')
_SPY_FRAME = regex(
    r"^\s{4}(?P<qualified>\S.{0,300}?) \((?P<file>[^()]{1,1000}?)(?::(?P<line>\d{1,9}))?\)\s*(?:(?:#|<-|//) .{0,200})?$"
)
#: frames of faulthandler, gdb's py-bt, its frames of the interpreter, its other frames, pystack, and py-spy
_FRAMES = (
    _FAULT_FRAME,
    _TRACEBACK_FRAME,
    _PYSTACK_FRAME,
    regex(r"\bfor file (?P<file>\S{1,500}), line (?P<line>\d{1,9}), in (?P<name>[\w<>.]{1,200}) \("),
    regex(
        r"^#\d{1,5} +(?:0x[0-9a-f]{1,16} in )?(?P<name>[^\s(]{1,400})"
        r"(?:.{0,3000} (?:at (?P<file>[^\s:]{1,500}):(?P<line>\d{1,9})|from (?P<library>\S{1,500}))\s*$)?"
    ),
    _SPY_FRAME,
)


def is_of_an_error(text: str) -> bool:
    """Return whether a line is the header of a traceback, whose frames are those of an error."""
    return "Traceback (most recent call last)" in text


def begins_dump(text: str) -> bool:
    """Return whether a line begins what faulthandler, py-spy or pystack print of a thread, or py-spy of a process."""
    return any(pattern.match(text) for pattern in (_FAULT_THREAD, _SPY_THREAD, _PYSTACK_THREAD, SPY_PROCESS))


def is_frame(text: str) -> bool:
    """Return whether a line is a frame as faulthandler, py-spy or pystack print it."""
    return any(pattern.match(text) for pattern in (_FAULT_FRAME, _SPY_FRAME, _PYSTACK_FRAME))


def untitled(text: str, raised: bool) -> OpenThread | None:
    """Return the thread whose stack begins with a line that has no header, such as below a title; None where none does.

    `raised`: a traceback's own header came before, so that its frames are those of an error.
    """
    if _TRACEBACK_FRAME.match(text):
        return None if raised else OpenThread("", "", outermost_first=True)
    return OpenThread("", "") if is_frame(text) or text.startswith("#0 ") else None


def header(text: str) -> OpenThread | None:
    """Return the thread that a line begins."""
    for pattern in _THREADS:
        if (match := pattern.match(text)) is not None:
            caught = match.groupdict()
            return OpenThread(
                caught["ident"],
                caught.get("name") or "",
                current=caught.get("which") == "Current thread",
                numbered_first=caught.get("which") == "1",
                outermost_first=pattern in (_PLAIN_THREAD, _PYSTACK_THREAD),
            )
    return None


def frame_of(text: str) -> Frame | None:
    """Return the frame that a line is."""
    for pattern in _FRAMES:
        if (match := pattern.search(text)) is not None:
            caught = match.groupdict()
            line = caught["line"] or ""
            name = caught["name"].strip() if "name" in caught else function_name(caught["qualified"])
            file = caught["file"] or caught.get("library") or ""
            return Frame(name, file, int(line) if line.isdigit() else 0)
    return None
