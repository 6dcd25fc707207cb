"""What the variables of a stack's innermost frame hold, as `py-spy dump --locals` prints them.

A frame is indented by four blanks, `Arguments:` and `Locals:` by eight, and each variable by twelve:

    |    run (schedule.py:71)
    |        Locals:
    |            m: 5
    |            w: <torch._C._distributed_c10d.Work at 0x7fbb2777b610>
"""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

KEPT = 400  # variables of one thread
VARIABLE = regex(r"^\s{12}\w{1,60}: (.{1,120})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Variables(Event, kind="variables", calm=True):
    """The values of the innermost frame's variables of one rank's main thread."""

    values: tuple[str, ...]
