"""Stacks within a log, long after its start.

faulthandler dumps them at an abort or when a timer of the job runs out; an inference engine's watchdog has py-spy print those
of every worker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.stacks.dumps import ProcessStacks, begins_dump, is_frame, processes_in
from hangscope.model.incident import Event

_LINES_KEPT = 20_000  # the last ones: of several dumps the last is the one of the freeze
_OTHERS_BETWEEN = 200  # lines of other writers that may stand within one dump


class LateStackParser(LineParser):
    """Keeps the lines of thread dumps; it makes no events, `processes` returns the stacks at the end."""

    literals = (b" (most recent call first):", b'): "MainThread"', b"Process ")

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=_LINES_KEPT)
        self._open: dict[str, int] = {}
        self._last = ""

    def feed(self, line: Line) -> Iterable[Event]:
        """Keep a line of a dump."""
        left = self._open.pop(line.origin, 0)
        if not line.origin and not left and self._last in self._open and is_frame(line.text):
            self._lines.append(line)  # a logger puts its prefix before the first line of what it prints alone
            return []
        if begins_dump(line.text) or (left and is_frame(line.text)):
            self._lines.append(line)
            self._open[line.origin] = _OTHERS_BETWEEN
            self._last = line.origin
        elif left > 1 and (not line.text.strip() or line.text.startswith("Python v")):
            self._open[line.origin] = left - 1  # between two threads, or a process and its first one
        self._open = {name: left - (name != line.origin) for name, left in self._open.items() if left > 1}
        return []

    def processes(self) -> list[ProcessStacks]:
        """Return the processes whose stacks were dumped."""
        return processes_in(self._lines)
