"""What all parsers of logs are: lines in, events out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from hangscope.ingest.lines.prefixes import Line
from hangscope.model.events import Event


class LineParser:
    """Turns lines into events. It sees the lines with one of its literals, and while `wants_more` every line.

    `literals` are byte strings of seven bytes or more (shorter ones cost a pass over the file each). `feed` may keep state;
    what of several lines is being read is `_open`.
    """

    literals: tuple[bytes, ...]
    _open: Any = None

    @property
    def wants_more(self) -> bool:
        """Return whether the next line is wanted whatever it holds."""
        return bool(self._open)

    def feed(self, line: Line) -> Iterable[Event]:
        """Return the events that this line completes."""
        raise NotImplementedError

    def close(self) -> Iterable[Event]:
        """Return the events that only the end of the file completes."""
        return ()


class BulkParser(LineParser):
    """A parser that reads lines of one form which repeats endlessly from the bytes themselves."""

    def run(self, block: bytes, start: int, number: int) -> int:
        """Read as many lines of the form as follow each other from `start`, the beginning of line `number`, on.

        Returns where the first line begins that is to be read like any other: `start` itself where this one is.
        """
        raise NotImplementedError
