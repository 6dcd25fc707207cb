"""The variables of a stack: what `py-spy dump --locals` prints below each frame of a process's main thread.

A frame is indented by four blanks, `Arguments:` and `Locals:` by eight, and each variable by twelve:

    |    run (schedule.py:71)
    |        Locals:
    |            m: 5
    |            w: <torch._C._distributed_c10d.Work at 0x7fbb2777b610>
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame
from hangscope.model.regex import regex

KEPT = 400  # variables of one thread
_WIDTH = 120
_VARIABLE = regex(r"^\s{12}(\w{1,60}): (.{1,2000})$")
_ADDRESS = regex(r" at 0x[0-9a-f]{1,16}")

#: how many frames are further in, the frame, the variable's name and its value
Variable = tuple[int, Frame, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables(Event, kind="variables", calm=True):
    """The variables of one rank's main thread, parallel: frames further in, function with its file, name, and value without addresses."""

    depths: tuple[int, ...]
    functions: tuple[str, ...]
    names: tuple[str, ...]
    values: tuple[str, ...]


def variable(text: str, frames: Sequence[Frame]) -> Variable | None:
    """Return the variable that a line below the last of these frames shows."""
    match = _VARIABLE.match(text) if frames else None
    return (
        (len(frames) - 1, frames[-1], match[1], _ADDRESS.sub("", match[2][:_WIDTH]))
        if match is not None
        else None
    )


def variables(found: Iterable[Variable], file: str, rank: int | None, pid: int | None) -> Variables | None:
    """Return the variables of one process as an event of it."""
    rows = [
        (d, f"{frame.name} ({frame.file.rsplit('/', 1)[-1]})", name, value) for d, frame, name, value in found
    ]
    if not rows:
        return None
    depths, functions, names, values = zip(*rows, strict=True)
    text = f"{names[0]}: {values[0]}"
    return Variables(
        file, 0, text, rank=rank, pid=pid, depths=depths, functions=functions, names=names, values=values
    )
