"""The table that torch's own analyzer prints with `-j`: the calls of each rank in a column, where somebody pasted it.

    Rank 0                                            Rank 1
    ------------------------------------------------  -----------------------------------------------
    all_reduce(input_sizes=[[4096]], state=completed)  all_reduce(input_sizes=[[4096]], state=completed)
    all_reduce(input_sizes=[[4096]], state=scheduled)  all_gather(input_sizes=[[8]], state=scheduled)

(torch/distributed/flight_recorder/components/utils.py, `just_print_entries`, and `Op.__repr__` of types.py.) The rows count what
each dump kept, so a row is no sequence number, and the first row in which columns differ may only show that they do.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.model.events import Event
from hangscope.model.regex import regex

_ROWS_KEPT = 4096
_CELL = regex(
    r"([a-z]\w{2,40})\((?:[^()]{0,400}?, )?input_sizes=(\[[\[\]\d, ]{0,400}\]), (?:[^()]{0,400}?, )?state=(\w{1,20})\)"
)
_HEADER = regex(r"\bRank (\d{1,7})\b")
_PAIRED = frozenset({"send", "recv", "coalesced"})
_LEAST = 3  # columns of which one may be the odd one


class AnalyzerTableParser(LineParser):
    """Gathers the rows; the first in which one column differs from all others is a report."""

    literals = (b"input_sizes=", b"Rank 0 ", b"Rank 0,")

    def __init__(self) -> None:
        self._ranks: list[int] = []
        self._rows: list[tuple[Line, list[tuple[int, str, str]]]] = []

    def feed(self, line: Line) -> Iterable[Event]:
        """Take a header or a row of the table."""
        cells = [(m.start(), m[1], m[2]) for m in _CELL.finditer(line.text)]
        if cells and len(self._rows) < _ROWS_KEPT:
            self._rows.append((line, cells))
        elif not cells and len(named := [int(rank) for rank in _HEADER.findall(line.text)]) > 1:
            self._ranks = self._ranks or named
        return ()

    def close(self) -> Iterable[Event]:
        """Return the report of the first row that differs, of a table whose columns are told."""
        starts = next(
            ([at for at, _, _ in cells] for _, cells in self._rows if len(cells) == len(self._ranks)), []
        )
        if len(starts) < _LEAST or len(set(self._ranks)) < len(starts):
            return
        for line, cells in self._rows:
            if any(at not in starts for at, _, _ in cells) or any(op in _PAIRED for _, op, _ in cells):
                return
            sides: dict[tuple[str, str] | None, list[int]] = defaultdict(list)
            made = {at: (op, sizes) for at, op, sizes in cells}
            for rank, at in zip(self._ranks, starts, strict=True):
                sides[made.get(at)].append(rank)
            usual = max(sides, key=lambda side: len(sides[side]))
            odd = [side for side in sides if side != usual]
            if odd:
                one = usual is not None and len(odd) == 1 and len(sides[odd[0]]) == 1
                if one and usual is not None and (odd[0] is not None or "state=completed" not in line.text):
                    yield line.event(
                        AnalyzerReport,
                        what="absent" if odd[0] is None else "unlike",
                        op=usual[0],
                        own_op=odd[0][0] if odd[0] is not None else None,
                        named=tuple(sides[odd[0]]),
                        expected=tuple(sorted(self._ranks)),
                    )
                return
