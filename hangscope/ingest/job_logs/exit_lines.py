"""How each process ended, as scripts around a job print it, one line for each.

    rank 1 exited with code 0
    Process 1 exit code: 0
    [rank 2] (pid 812) returned with status 1
    exit code of worker 3: 137

The number of a rank is the rank. What counts processes or workers counts the ranks where there is one line for each from 0 on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from hangscope.events import Event
from hangscope.ingest.job_logs.endings import exit_event
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.regex import regex

_LEAST, _MOST = 2, 4096  # processes that are counted
_WHO = (
    r"(?<!local )\b(?:rank[ :=#_-]{0,2}(\d{1,7})|(?:process|proc|worker|child|trainer)[ :=#_-]{0,2}(\d{1,4}))"
)
_PID = r"(?:[\])]? ?[(\[]pid[ :=]{1,2}(\d{1,9})[)\]])?"
_CODE = r"(?:(?:exit|return)[ _-]?)?(?:code|status)|rc"
_SAYS = (
    rf"(?:(?:exit(?:s|ed)?|returned|finished|ended|terminated|died|stopped|left|quit)(?: with)?(?: an?)? (?:{_CODE})"
    rf"|exit(?:s|ed)?(?: with)?|{_CODE})"
)
_NUMBER = r"(-?\d{1,3})(?: \(SIG[A-Z]{1,8}\))?\W{0,3}$"
_LINE = regex(
    rf"^(?:\S{{1,60}} ){{0,4}}?\W{{0,3}}{_WHO}{_PID}[\s:,=>\])-]{{1,5}}(?:process )?(?:has |was |is )?{_SAYS}[\s:=(]{{1,4}}{_NUMBER}",
    re.IGNORECASE,
)
_OF = regex(rf"\b(?:{_CODE}) (?:of|from|for) {_WHO}{_PID}[\s:=]{{1,4}}(?:is |was )?{_NUMBER}", re.IGNORECASE)


def of_one(text: str) -> re.Match[str] | None:
    """Return what matches where a line tells how one process of several ended: (rank, number, process id, code)."""
    return _LINE.match(text) or _OF.search(text)


class ExitLineParser(LineParser):
    """Reads such lines; those of processes that are no ranks by their words are told at the end."""

    literals = (b"exit", b"Exit", b"return", b"with code", b"with status", b" rc=", b" rc ", b"code ")

    def __init__(self) -> None:
        self._counted: dict[int, tuple[Line, int, int | None]] = {}

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the end of a rank."""
        found = of_one(line.text) if line.source is None else None
        if found is None:
            return
        rank, number, pid, code = (int(group) if group else None for group in found.groups())
        if rank is not None and rank < MAX_RANKS and code is not None:
            yield replace(exit_event(line, code, pid=pid, via="script"), rank=rank)
        elif number is not None and code is not None and len(self._counted) < _MOST:
            self._counted[number] = (line, code, pid)

    def close(self) -> Iterable[Event]:
        """Return the ends of processes that are counted from 0 on."""
        if len(self._counted) >= _LEAST and set(self._counted) == set(range(len(self._counted))):
            for number, (line, code, pid) in self._counted.items():
                yield exit_event(line, code, task=number, pid=pid, via="script")
