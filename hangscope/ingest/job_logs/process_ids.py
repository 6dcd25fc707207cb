"""Which rank a process id is, as launchers, programs and people write it when they start it or look for it.

    launcher: started rank 6 pid 41206
    pid 41206 -> rank 6;  rank=6 pid=41206;  Rank 6 (host b2) runs as PID 41206
    [rank6]: pid 41206
    (RayTrainWorker pid=41206, ip=10.0.0.6) [rank6]: loaded

Only words of starting and being may stand between the two: what was done to a process is another thing. A local rank is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hangscope.events import Event
from hangscope.ingest.job_logs.deepspeed import Spawned
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.regex import regex

_MOST = 4096  # process ids of one text
_RANK = r"(?<![\w-])(?:global[ _-]?|world[ _-]?)?rank[\s:=#]{0,3}(\d{1,7})(?![\w.])"
_PID = r"\b(?:os\.)?(?:pid|process[ _]id)[\s:=#]{0,3}(\d{2,9})(?![\w.])"
_HOST = r"(?:[(@]? ?(?:on|host|node)[ :=]{1,2}(?:(?:host|node) )?[\w.-]{1,100}[\s,;)]{1,3})?"
_BETWEEN = (
    rf"[\s:=,;|/()\[\]<>-]{{0,5}}{_HOST}"
    r"(?:(?:is|has|as|with|runs?|running|started|spawned|launched|process|worker|the|its)[\s:=,;(\[>-]{1,4}){0,4}"
)
_TOLD = regex(rf"{_RANK}{_BETWEEN}{_PID}|{_PID}{_BETWEEN}{_RANK}", re.IGNORECASE)
_LOCAL = regex(r"(?:local|node|group|machine)[ _-]{0,2}rank", re.IGNORECASE)
_OWN = regex(
    rf"^\W{{0,3}}(?:my |own |running (?:as|with) |started (?:as|with) )?{_PID}\s{{0,3}}(?:$|[,;)\]])",
    re.IGNORECASE,
)


class ProcessIdParser(LineParser):
    """Reads who is which process; each is told once."""

    literals = (
        *(word + end for word in (b"pid", b"PID", b"Pid") for end in (b" ", b": ", b":\t")),
        *(before + word for word in (b"pid=", b"PID=") for before in (b"(", b", ", b"; ", b"\t")),
        *(b"%d pid=" % digit for digit in range(10)),
        *(b"%d PID=" % digit for digit in range(10)),
        b"process id ",
        b") [rank",
    )

    def __init__(self) -> None:
        self._told: set[tuple[int, int]] = set()

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the process that a line tells of."""
        found = _process(line)
        if found is None or found in self._told or len(self._told) >= _MOST or found[0] >= MAX_RANKS:
            return ()
        self._told.add(found)
        return (replace(line.event(Spawned), rank=found[0], pid=found[1]),)


def _process(line: Line) -> tuple[int, int] | None:
    """Return (rank, process id) of a line that tells both."""
    if line.rank is not None:
        own = _OWN.match(line.text)
        number = int(own[1]) if own else line.pid
        return None if number is None or line.source is not None else (line.rank, number)
    match = _TOLD.search(line.text) if not _LOCAL.search(line.text) else None
    if match is None:
        return None
    rank, pid, other, its_rank = match.groups()
    return (int(rank), int(pid)) if rank is not None else (int(its_rank), int(other))
