"""Reports of several lines from the NCCL watchdog: the desync report and the failed collective's stack.

    [rank0]:[E...] [PG ID 0 ...] Rank 0
             - [0] Timeout at collective: ALLREDUCE, #6
             - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
               - [0, 2] joined but didn't finish collective #6 (count from 1)
                 [1] finished collective #5, but didn't join collective #6 (count from 1)
             - Snapshot of ranks' latest states:
               #6 started ranks:
                 [0, 2] started ALLREDUCE

(torch/csrc/distributed/c10d/TraceUtils.h.) Only the first line carries a prefix; the ranks are local to the
group.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.torch_logs.c10d_names import GroupEvent, ranks_in, user_op
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

_LINES_OF_A_REPORT = 80
_LINES_OF_OTHERS = 2000  # that may stand between two lines of one writer's report
_FRAMES = 60

_AT = regex(r"- \[(\d{1,7})\] Timeout at collective: ([A-Z_]{1,60}), #(\d{1,18})")
_NEVER = regex(
    r"ranks \[([\d, ]{1,60000})\] are the lagging ranks that caused this timeout\. They never joined any "
    r"collectives"
)
_JOINED = regex(r"\[([\d, ]{1,60000})\] joined but didn't finish collective #(\d{1,18})")
_MISSED = regex(
    r"\[([\d, ]{1,60000})\] finished collective #\d{1,18}, but didn't join collective #(\d{1,18})"
)
_STATE = regex(r"^\s*#(\d{1,18}) (started|finished) ranks:")
_STARTED = regex(r"^\s*\[([\d, ]{1,60000})\] started ([A-Z_]{1,60})\b")
_PART = regex(r"^\s*(?:- |\[|#\d)")
_FRAME = regex(r"^\s*#\d{1,4} (.{1,300}?) from (.{1,500}):(\d{1,9})\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class Desync(
    GroupEvent,
    same_by=("seq", "op", "never_joined", "joined_not_finished", "not_joined"),
    prints_group_rank=True,
):
    """The report of TORCH_NCCL_DESYNC_DEBUG. All ranks are group-local; the mappings are by seq, `started` by the call that they began at `seq`."""

    reporter: int | None = None
    op: str | None = None
    seq: int | None = None
    never_joined: tuple[int, ...] = ()
    joined_not_finished: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    not_joined: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    started: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedStack(GroupEvent, same_by=("frames",), prints_group_rank=True):
    """The line "Stack trace of the failed collective": who made the call that timed out, innermost first."""

    frames: Stack


@dataclass(slots=True)
class _Report:
    """One report that is being read."""

    first: Line
    fields: dict[str, Any] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    left: int = _LINES_OF_A_REPORT
    patience: int = _LINES_OF_OTHERS

    def is_of(self, line: Line) -> bool:
        """Return whether a line may belong to it: no other rank printed it. Only the first line says which rank."""
        return line.rank is None or self.first.rank is None or line.rank == self.first.rank


#: who writes, as launchers tell it on every line; c10 itself names the rank on the first line only
Writer = tuple[str | None, int | None, int | None]


def _writer(line: Line) -> Writer:
    return line.host, line.local_rank, line.task


class _ReportParser(LineParser):
    """Keeps the reports that are being read, one of each writer."""

    def __init__(self) -> None:
        self._open: dict[Writer, _Report] = {}

    def _given_up(self, writer: Writer) -> list[Event]:
        """Return the events of reports that do not go on any more, now that `writer` printed one more line."""
        for other, report in self._open.items():
            report.patience = _LINES_OF_OTHERS if other == writer else report.patience - 1
        lost = [other for other, report in self._open.items() if report.patience <= 0]
        return [event for other in lost for event in self._end(other)]

    def _end(self, writer: Writer) -> list[Event]:
        """Return the event of a report that has ended."""
        raise NotImplementedError

    def close(self) -> Iterable[Event]:
        """Return the reports that the file ends in."""
        return [event for writer in list(self._open) for event in self._end(writer)]


class DesyncParser(_ReportParser):
    """Collects desync reports, one `desync` event each."""

    literals = (
        b" Timeout at collective: ",
        b"They never joined any collectives",
        b" joined but didn't finish collective",
        b"but didn't join collective",
    )

    def feed(self, line: Line) -> Iterable[Event]:
        """Add a line to the report of its writer, or end that."""
        writer = _writer(line)
        begins = any(pattern.search(line.text) for pattern in (_AT, _NEVER, _JOINED, _MISSED))
        report = self._open.get(writer)
        done = self._given_up(writer)
        if report is not None:
            report.left -= 1
            if not report.is_of(line) and not begins and report.left > 0:
                return done  # another rank's line within the report
            if (
                not report.is_of(line)
                or not _PART.match(line.text)
                or report.left <= 0
                or _AT.search(line.text)
            ):
                done += self._end(writer)
                report = None
        if report is None:
            if not begins:
                return done
            report = self._open[writer] = _Report(line)
        _take(report.fields, line.text)
        return done

    def _end(self, writer: Writer) -> list[Event]:
        report = self._open.pop(writer)
        report.fields.pop("at", None)
        if not report.fields:
            return []
        event = Desync.of(report.first, **report.fields)
        reporter = report.fields.get("reporter")
        if event.group_rank is None and reporter is not None:
            event = report.first.event(Desync, reporter, **report.fields)
        return [event]


def _take(fields: dict[str, Any], text: str) -> None:
    if match := _STATE.match(text):
        fields["at"] = int(match.group(1)) if match.group(2) == "started" else None
    elif (
        (match := _STARTED.match(text)) and fields.get("at") is not None and fields["at"] == fields.get("seq")
    ):
        fields.setdefault("started", {})[user_op(match.group(2))] = ranks_in(match.group(1))
    if match := _AT.search(text):
        fields |= {"reporter": int(match.group(1)), "op": user_op(match.group(2)), "seq": int(match.group(3))}
    if match := _NEVER.search(text):
        fields["never_joined"] = ranks_in(match.group(1))
    for name, pattern in (("joined_not_finished", _JOINED), ("not_joined", _MISSED)):
        if match := pattern.search(text):
            fields.setdefault(name, {})[int(match.group(2))] = ranks_in(match.group(1))


class FailedStackParser(_ReportParser):
    """Collects the Python stack that the recorder kept of the collective that timed out."""

    literals = (b"Stack trace of the failed collective: ",)

    def feed(self, line: Line) -> Iterable[Event]:
        """Add a frame to the stack of its writer, or end that."""
        writer = _writer(line)
        begins = "Stack trace of the failed collective: " in line.text
        report = self._open.get(writer)
        done = self._given_up(writer)
        if report is not None:
            report.left -= 1
            match = _FRAME.match(line.text) if report.is_of(line) else None
            if match and len(report.frames) < _FRAMES:
                report.frames.append(Frame(match.group(1), match.group(2), int(match.group(3))))
                return done
            if not report.is_of(line) and not begins and report.left > 0:
                return done  # another rank's line within the stack
            done += self._end(writer)
        if begins:
            self._open[writer] = _Report(line)
        return done

    def _end(self, writer: Writer) -> list[Event]:
        report = self._open.pop(writer)
        return [FailedStack.of(report.first, frames=tuple(report.frames))] if report.frames else []
