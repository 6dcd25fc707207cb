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

from collections.abc import Iterable
from dataclasses import field
from typing import Any

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, ranks_in
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES = 24  # of one report, its stack apart
_ABSENT = regex(r"Not all ranks joining collective[,:] sequence number: (\d{1,18})")
_UNLIKE = regex(
    r"(?:Collective sequence number: (\d{1,18}) has errors|Input/output mismatch in the collective sequence number: (\d{1,18}))"
)
_LACKS = regex(r"because we missed FR dumps from ranks \(\{([\d, ]{1,60000})\}\)")
_GROUP = regex(r"^\s*group info: ([^\s:]{1,200})(?::(.{1,200}))?$")
_OP = regex(r"^\s*collective: (?:[\w.-]{1,40}:)?([\w ><?-]{1,80})$")
_MISSING = regex(r"^\s*missing ranks: \{([\d, ]{1,60000})\}")
_EXPECTED = regex(r"^\s*expected ranks: \{([\d, ]{1,60000})\}")
_ERROR = regex(
    r"Culprit rank (\d{1,7}); Error type: ([A-Z_]{3,60})"
    r"(?:, Expected [\w ]{1,40}: '(\{[^{}]{1,80}\}|[^']{1,400})' does not\s{1,3}match found [\w ]{1,40}: "
    r"'(\{[^{}]{0,80}\}/\{[^{}]{0,80}\}/\{[^{}]{0,80}\}|[^']{1,400})')?"
)
#: what is said of calls that are at other stages, not of other calls
_STATE = "COLLECTIVE_STATE_MISMATCH"
_LAST = regex(r"^\s*(?:collective stack trace:|error msg:)")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerReport(GroupEvent, same_by=("what", "seq", "group_name", "named")):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class AnalyzerUndecided(Event, same_by=("unseen",), calm=True):
    """The analyzer's word that it lacks the dumps of the `unseen` ranks (global) to decide."""

    unseen: tuple[int, ...]


@dataclass(slots=True)
class _Open:
    first: Line
    fields: dict[str, Any] = field(default_factory=dict)
    left: int = _LINES


class AnalyzerParser(LineParser):
    """Collects the lines of each report into one event."""

    literals = (
        b"Not all ranks joining collective",
        b"Collective sequence number: ",
        b"Input/output mismatch in the collective",
        b"because we missed FR dumps from ranks",
    )

    def __init__(self) -> None:
        self._open: _Open | None = None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line of a report."""
        absent, unlike = _ABSENT.search(line.text), _UNLIKE.search(line.text)
        if absent or unlike:
            done = list(self.close())
            seq = absent[1] if absent else unlike[1] or unlike[2] if unlike else "0"
            self._open = _Open(line, {"what": "absent" if absent else "unlike", "seq": int(seq)})
            return done
        if lacks := _LACKS.search(line.text):
            return [*self.close(), line.event(AnalyzerUndecided, unseen=ranks_in(lacks[1]))]
        report = self._open
        if report is None:
            return ()
        report.left -= 1
        self._take(report.fields, line.text)
        return self.close() if report.left <= 0 or _LAST.match(line.text) else ()

    @staticmethod
    def _take(fields: dict[str, Any], text: str) -> None:
        if match := _GROUP.match(text):
            fields |= {"group_name": match[1], "group_desc": match[2]}
        elif match := _OP.match(text):
            fields["op"] = (
                match[1].split()[0].lstrip("_").replace("all_gather_base", "all_gather_into_tensor")
            )
        elif match := _MISSING.match(text):
            fields["named"] = ranks_in(match[1])
        elif match := _EXPECTED.match(text):
            fields["expected"] = ranks_in(match[1])
        elif found := _ERROR.findall(text):
            unlike = sorted({int(told[0]): told for told in found if told[1] != _STATE}.items())
            fields["named"] = tuple(rank for rank, _ in unlike)
            fields["error"] = found[0][1] if not unlike else unlike[0][1][1]
            fields["wanted"] = unlike[0][1][2] if unlike else ""
            fields["found"] = tuple(told[3] for _, told in unlike)

    def close(self) -> Iterable[Event]:
        """Return the report that is open."""
        report, self._open = self._open, None
        return [] if report is None else [report.first.event(AnalyzerReport, **report.fields)]
