"""Accelerate's check of shapes before a collective (ACCELERATE_DEBUG_MODE), which every process raises with the shapes of all.

    accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape mismatches. All shapes ...

    Operation: `accelerate.utils.operations.gather`
    Input shapes:
      - Process 0: [8, 512]
      - Process 1: [8, 498]

(accelerate/utils/operations.py, `verify_operation`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import field

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LEAST = 3  # processes of which one may be the odd one
_SAYS = "due to shape mismatches. All shapes across devices must be valid"
_OPERATION = regex(r"Operation: `[\w.]{0,100}?(\w{1,60})`")
_SHAPE = regex(r"^\s*- Process (\d{1,7}): (\[[\d, ]{0,200}\])\s*$")
_MADE = {"gather": "all_gather_into_tensor", "reduce": "all_reduce"}


@dataclass(slots=True)
class _Open:
    first: Line
    op: str = ""
    shapes: dict[int, str] = field(default_factory=dict)
    left: int = 6  # lines up to the first shape, and between two


class AccelerateCheckParser(LineParser):
    """Joins the lines of one exception into a report of the calls that differ."""

    literals = (_SAYS.encode(),)

    def __init__(self) -> None:
        self._open: _Open | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line; return the report that it ends."""
        if _SAYS in line.text:
            done = list(self.close())
            self._open = _Open(line)
            return done
        told = self._open
        if told is None:
            return ()
        if found := _OPERATION.search(line.text):
            told.op = _MADE.get(found[1], found[1])
        elif (shape := _SHAPE.match(line.text)) and int(shape[1]) < MAX_RANKS:
            told.shapes[int(shape[1])], told.left = shape[2], 6
        told.left -= 1
        return self.close() if told.left <= 0 else ()

    def close(self) -> Iterable[Event]:
        """Return the report that is open, where most processes gave one shape."""
        told, self._open = self._open, None
        if told is None or len(told.shapes) < _LEAST:
            return
        ((usual, times),) = Counter(told.shapes.values()).most_common(1)
        named = tuple(rank for rank, shape in sorted(told.shapes.items()) if shape != usual)
        if named and 2 * times > len(told.shapes):
            yield told.first.event(
                AnalyzerReport, what="unlike", op=told.op, named=named, expected=tuple(sorted(told.shapes)), error="COLLECTIVE_SIZE",
                wanted=usual, found=tuple(told.shapes[rank] for rank in named),
            )  # fmt: skip
