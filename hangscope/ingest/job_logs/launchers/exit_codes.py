"""Ends of which one line tells whose they are and a later one the exit code: mpirun's, and SGLang's of its schedulers.

    mpirun detected that one or more processes exited with non-zero status, thus causing
    the job to be terminated. The first process to do so was:

      Process name: [[12345,1],3]
      Exit code:    137

    [2026-01-14 05:02:11] Rank 3 scheduler is dead. Please check if there are relevant logs.
    [2026-01-14 05:02:12] Exit code: -9

(Open MPI 3 to 5, help-prun.txt and help-orterun.txt; sglang/srt/entrypoints/engine.py.) mpirun's last number is the rank in
MPI_COMM_WORLD. SGLang looks at its schedulers in their order and names the first that is gone, not the one that went first.
"""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.ingest.job_logs.endings import Exit, WorkersSwept
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES = 4  # in which the code follows
_TASK = regex(r"^\s*Process name: \[\[\w{1,20},\d{1,10}\],(\d{1,7})\]\s*$")
_SCHEDULER = regex(r"\bRank \d{1,7} scheduler is dead\.")
_CODE = regex(r"^\W*(?:\S{1,40} )?Exit code: {1,6}(-?\d{1,4})\s*$")


@dataclass(slots=True)
class _Open:
    first: Line
    task: int | None
    left: int = _LINES


class ExitCodeParser(LineParser):
    """Joins who ended with the code; a scheduler without one is a worker that failed."""

    literals = (b"Process name: [[", b" scheduler is dead.")

    def __init__(self) -> None:
        self._open: _Open | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line; return the end that it completes."""
        task, scheduler = _TASK.match(line.text), _SCHEDULER.search(line.text)
        if task or scheduler:
            done = list(self.close())
            self._open = _Open(line, int(task[1]) if task else None)
            return done
        if self._open is None:
            return ()
        if code := _CODE.match(line.text):
            opened, self._open = self._open, None
            via = "mpirun" if opened.task is not None else "engine"
            return [Exit.of(opened.first, code=int(code[1]), task=opened.task, via=via)]
        self._open.left -= 1
        return () if self._open.left > 0 else self.close()

    def close(self) -> Iterable[Event]:
        """Return the scheduler of which no code is told."""
        opened, self._open = self._open, None
        if opened is None or opened.task is not None:
            return ()
        return [opened.first.event(WorkersSwept, failed="a scheduler")]
