"""Stacks that a rank printed into its log: by faulthandler at a timeout, or py-spy's output between other lines."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.stacks.dumps import ProcessStacks, processes_in
from hangscope.ingest.stacks.headers import begins_dump, is_frame, is_of_an_error
from hangscope.model.events import Event

_LINES_KEPT = 20_000  # the last ones: of several dumps the last is the one of the freeze
_SOURCE = " " * 8  # pystack shows the source text below each frame
_OTHERS_BETWEEN = 200  # lines of other writers that may stand within one dump


class LateStackParser(LineParser):
    """Keeps the lines of thread dumps; it makes no events, `processes` returns the stacks at the end."""

    literals = (b" (most recent call first):", b'): "MainThread"', b"Process ", b"Traceback for thread ")

    def __init__(self) -> None:
        self._lines: deque[Line] = deque(maxlen=_LINES_KEPT)
        self._open: dict[str, int] = {}
        self._last = ""

    def feed(self, line: Line) -> Iterable[Event]:
        """Keep a line of a dump."""
        left = self._open.pop(line.origin, 0)
        if is_of_an_error(line.text):
            return []
        if not line.origin and not left and self._last in self._open and is_frame(line.text):
            self._lines.append(line)  # a logger puts its prefix before the first line of what it prints alone
            return []
        if begins_dump(line.text) or (left and is_frame(line.text)):
            self._lines.append(line)
            self._open[line.origin] = _OTHERS_BETWEEN
            self._last = line.origin
        elif left > 1 and (not line.text.strip() or line.text.startswith(("Python v", _SOURCE))):
            self._open[line.origin] = left - 1  # between two threads, or two frames
        self._open = {name: left - (name != line.origin) for name, left in self._open.items() if left > 1}
        return []

    def processes(self) -> list[ProcessStacks]:
        """Return the processes whose stacks were dumped."""
        return [process for process in processes_in(self._lines) if process.threads]
