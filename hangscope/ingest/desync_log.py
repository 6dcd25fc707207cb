"""Reports of several lines from the NCCL watchdog: the desync report and the failed collective's stack.

    [rank0]:[E...] [PG ID 0 ...] Rank 0
             - [0] Timeout at collective: ALLREDUCE, #6
             - To our best knowledge, the lagging/dead/mismatched ranks that caused the desync are:
               - [0, 2] joined but didn't finish collective #6 (count from 1)
                 [1] finished collective #5, but didn't join collective #6 (count from 1)
             - Snapshot of ranks' latest states:
               ...

(torch/csrc/distributed/c10d/TraceUtils.h.) Only the first line carries a prefix; the ranks are local to the
group.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from hangscope.incident import Event
from hangscope.ingest.c10d_log import group_event
from hangscope.ingest.c10d_names import user_op
from hangscope.ingest.log_prefix import Line

_LINES_OF_A_REPORT = 80
_FRAMES = 60

_AT = re.compile(r"- \[(\d{1,7})\] Timeout at collective: ([A-Z_]{1,60}), #(\d{1,18})")
_NEVER = re.compile(
    r"ranks \[([\d, ]{1,60000})\] are the lagging ranks that caused this timeout\. They never joined any "
    r"collectives"
)
_JOINED = re.compile(r"\[([\d, ]{1,60000})\] joined but didn't finish collective #(\d{1,18})")
_MISSED = re.compile(
    r"\[([\d, ]{1,60000})\] finished collective #\d{1,18}, but didn't join collective #(\d{1,18})"
)
_PART = re.compile(r"^\s*(?:- |\[|#\d)")
_FRAME = re.compile(r"^\s*#\d{1,4} (.{1,300}?) from (.{1,500}):(\d{1,9})\s*$")


class DesyncParser:
    """Collects desync reports, one `desync` event each."""

    literals = (
        b" Timeout at collective: ",
        b"They never joined any collectives",
        b" joined but didn't finish collective",
        b"but didn't join collective",
    )

    def __init__(self) -> None:
        self._first: Line | None = None
        self._fields: dict[str, Any] = {}
        self._left = 0

    @property
    def wants_more(self) -> bool:
        """Whether a report is being read."""
        return self._first is not None

    def feed(self, line: Line) -> Iterable[Event]:
        """Add a line to the report, or end it."""
        done: list[Event] = []
        if self._first is not None and (not self._is_part(line) or self._left <= 0 or _AT.search(line.text)):
            done = list(self.close())
        self._left -= 1
        if self._first is None:
            if not any(pattern.search(line.text) for pattern in (_AT, _NEVER, _JOINED, _MISSED)):
                return done
            self._first, self._fields, self._left = line, {}, _LINES_OF_A_REPORT
        self._take(line.text)
        return done

    def _is_part(self, line: Line) -> bool:
        other_rank = (
            self._first is not None
            and None not in (line.rank, self._first.rank)
            and line.rank != self._first.rank
        )
        return not other_rank and bool(_PART.match(line.text))

    def _take(self, text: str) -> None:
        if match := _AT.search(text):
            self._fields |= {
                "reporter": int(match.group(1)),
                "op": user_op(match.group(2)),
                "seq": int(match.group(3)),
            }
        if match := _NEVER.search(text):
            self._fields["never_joined"] = _ranks(match.group(1))
        for name, pattern in (("joined_not_finished", _JOINED), ("not_joined", _MISSED)):
            if match := pattern.search(text):
                self._fields.setdefault(name, {})[int(match.group(2))] = _ranks(match.group(1))

    def close(self) -> Iterable[Event]:
        """Return the report that the file ends in."""
        first, fields = self._first, self._fields
        self._first = None
        if first is None or not fields:
            return []
        event = group_event(first, "desync", **fields)
        reporter = fields.get("reporter")
        if event.group_rank is None and reporter is not None:
            event = first.event("desync", reporter, **fields)
        return [event]


def _ranks(text: str) -> list[int]:
    return sorted({int(n) for n in re.findall(r"\d{1,7}", text)})


class FailedStackParser:
    """Collects the Python stack that the recorder kept of the collective that timed out."""

    literals = (b"Stack trace of the failed collective: ",)

    def __init__(self) -> None:
        self._first: Line | None = None
        self._frames: list[list[Any]] = []

    @property
    def wants_more(self) -> bool:
        """Whether frames are being read."""
        return self._first is not None

    def feed(self, line: Line) -> Iterable[Event]:
        """Add a frame, or end the stack."""
        if self._first is not None:
            match = _FRAME.match(line.text)
            if match and len(self._frames) < _FRAMES:
                self._frames.append([match.group(1), match.group(2), int(match.group(3))])
                return []
        done = list(self.close())
        if "Stack trace of the failed collective: " in line.text:
            self._first, self._frames = line, []
        return done

    def close(self) -> Iterable[Event]:
        """Return the stack that the file ends in."""
        first, frames = self._first, self._frames
        self._first = None
        if first is None or not frames:
            return []
        return [group_event(first, "failed_stack", frames=frames)]
