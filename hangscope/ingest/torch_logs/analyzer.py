"""What torch's own analyzer of Flight Recorder dumps printed, where somebody pasted that instead of the dumps.

    Not all ranks joining collective, sequence number: 4
    internal record id: 3
    group info: 0:default_pg
    collective: nccl:all_reduce
    missing ranks: {3, 4}

(torch/distributed/flight_recorder/components/types.py and utils.py; before 2.9 tools/flight_recorder. Up to 2.12 the first
line has a colon for the comma.) Its blame depends on the order of its inputs, so what it names is a hint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hangscope.ingest.lines.blocks import Found, block
from hangscope.ingest.lines.forms import LineParser, says
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES = 24  # of one report, its stack apart
#: what is said of calls that are at other stages, not of other calls
_STATE = "COLLECTIVE_STATE_MISMATCH"


def _report(found: Found) -> Iterator[Event]:
    """Yield the report; of what its lines say of several ranks the mismatches of calls count."""
    fields = found.caught(AnalyzerReport)
    if op := found.last("op"):
        fields["op"] = op.split()[0].lstrip("_").replace("all_gather_base", "all_gather_into_tensor")
    if errors := list(found.all("culprit", "error")):
        texts = [
            (match["wanted"] or "", match["made"] or "")
            for _, match in found.parts
            if "culprit" in match.groupdict()
        ]
        unlike = sorted(
            {int(r): (e, *t) for (r, e), t in zip(errors, texts, strict=True) if e != _STATE}.items()
        )
        fields["named"] = tuple(rank for rank, _ in unlike)
        fields["error"] = unlike[0][1][0] if unlike else errors[0][1]
        fields["wanted"] = unlike[0][1][1] if unlike else ""
        fields["found"] = tuple(made for _, (_, _, made) in unlike)
    yield found.first.event(AnalyzerReport, **fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerReport(
    GroupEvent, same_by=("what", "seq", "group_name", "named"), rank_fields=("named", "expected")
):
    """One report of torch's analyzer. `what` is absent or unlike; all ranks are global; `error` as it names the mismatch.

    A row of its table has no `seq`, and tells what the one that is named made (`own_op`).
    Of calls that are unlike, `wanted` and `found` are what it printed of the call that it took for right and of that of each
    of the `named`, in their order: a call's name, sizes or element types.
    """

    what: str
    seq: int | None = None
    op: str | None = None
    own_op: str | None = None
    named: tuple[int, ...] = ()
    expected: tuple[int, ...] = ()
    error: str | None = None
    wanted: str = ""
    found: tuple[str, ...] = ()


REPORT = block(
    says(r"Not all ranks joining collective[,:] sequence number: (?P<seq>\d{1,18})", what="absent"),
    says(r"Collective sequence number: (?P<seq>\d{1,18}) has errors", what="unlike"),
    says(r"Collective (?P<seq>\d{1,18}) at entry \d{1,18} errors", what="unlike"),
    says(r"Input/output mismatch in the collective sequence number: (?P<seq>\d{1,18})", what="unlike"),
    regex(r"^\s*group info: (?P<group_name>[^\s:]{1,200})(?::(?P<group_desc>.{1,200}))?$"),
    regex(r"^\s*collective: (?:[\w.-]{1,40}:)?(?P<op>[\w ><?-]{1,80})$"),
    regex(r"^\s*missing ranks: \{(?P<named>[\d, ]{1,60000})\}"),
    regex(r"^\s*expected ranks: \{(?P<expected>[\d, ]{1,60000})\}"),
    regex(
        r"Culprit rank (?P<culprit>\d{1,7}); Error type: (?P<error>[A-Z_]{3,60})"
        r"(?:, Expected [\w ]{1,40}: '(?P<wanted>\{[^{}]{1,80}\}|[^']{1,400})' does not\s{1,3}match found [\w ]{1,40}: "
        r"'(?P<made>\{[^{}]{0,80}\}/\{[^{}]{0,80}\}/\{[^{}]{0,80}\}|[^']{1,400})')?"
    ),
    ends=regex(r"^\s*(?:collective stack trace:|error msg:)"),
    lines=_LINES,
    made=_report,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerUndecided(Event, same_by=("unseen",), calm=True, rank_fields=("unseen",)):
    """The analyzer's word that it lacks the dumps of the `unseen` ranks (global) to decide."""

    unseen: tuple[int, ...]
    forms = (says(r"because we missed FR dumps from ranks \(\{(?P<unseen>[\d, ]{1,60000})\}\)"),)


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
