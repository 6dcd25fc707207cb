"""torchrun's table of failed workers, and the error file that a worker leaves for it.

    torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
    Root Cause (first observed failure):
    [0]:
      time      : 2026-11-20_15:31:49
      host      : gpu07
      rank      : 1 (local_rank: 1)
      exitcode  : -9 (pid: 29461)  (SIGKILL)
      error_file: <N/A>
      traceback : Signal 9 (SIGKILL) received by PID 29461

(torch/distributed/elastic/multiprocessing/errors/__init__.py; 1.9 wrote `msg` for `traceback`.) Ranks here
are global.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.job_logs.endings import Exit, WorkersSwept
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line, quote, strip_prefix
from hangscope.ingest.torch_logs.traceback import RankException, TracebackParser
from hangscope.model.events import Event
from hangscope.model.regex import regex

_LINES_OF_A_TABLE = 200_000
_LINES_WITHOUT_ENTRY = 60
_FIELD = regex(r"^\s{0,6}(time|host|rank|exitcode|error_file|traceback|msg)\s*: ?(.*)$")
_START = "errors.ChildFailedError"
_HEADLESS = regex(
    r"^\s{0,6}(?:time      : \d{4}-\d\d-\d\d_|host      : \S|rank      : \d{1,7} \(local_rank: \d|exitcode  : -?\d{1,4} {1,6}\(pid: )"
)
_ROOT = regex(r"^\s*Root Cause\b")
_OTHERS = regex(r"^\s*(?:Failures|Other Failures):\s*$")
_ENTRY = regex(r"^\s*\[(\d{1,7})\]:\s*$")
#: an entry whose line breaks a page, a mail or a picture's text lost
_JOINED = regex(
    r"\brank ?:? ?(\d{1,7}) ?\(local[_ ]rank ?: ?(\d{1,6})\) ?exitcode ?: ?(-?\d{1,4}) {0,6}\(pid ?: ?(\d{1,9})\)"
)
_ALWAYS = {"time", "rank", "exitcode"}
_RULER = regex(r"^\s*={20,}\s*$")


class FailureTableParser(LineParser):
    """Turns each entry of a table into one `exit` event; `first` marks the launcher's own root cause. A table without any still tells that a worker failed.

    `notes` tell of tables whose entries are not whole.
    """

    literals = (
        b"errors.ChildFailedError",
        b"Root Cause (first observed failure)",
        b"Root Cause:",
        b"Failures:",
        b"  time      : 2",
        b"  host      : ",
        b" (local_rank: ",
        b"  exitcode  : ",
    )

    def __init__(self) -> None:
        self._origin: str | None = None
        self._root = False
        self._entry: dict[str, str] = {}
        self._where: Line | None = None
        self._head: Line | None = None  # of a table of which no entry was read yet
        self._left = self._idle = 0
        self._begun = self._doubled = self._rooted = self._headless = False
        self._numbers: set[int] = set()
        self.notes: list[Note] = []

    @property
    def wants_more(self) -> bool:
        """Whether a table is being read."""
        return self._origin is not None

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line of the table."""
        if joined := list(_JOINED.finditer(line.text)):
            return [self._one_line(line, match) for match in joined]
        if self._origin is None:
            beheaded = _FIELD.match(line.text)  # an excerpt that begins within an entry
            headed = _START in line.text or _ROOT.match(line.text) or _OTHERS.match(line.text)
            if not headed and not _HEADLESS.match(line.text):
                return []
            self._origin, self._root, self._left, self._idle = (
                line.origin,
                bool(_ROOT.match(line.text)),
                _LINES_OF_A_TABLE,
                _LINES_WITHOUT_ENTRY,
            )
            self._head = line if _START in line.text else None
            # In the form of torch 1.9 the others stand in a table behind the root cause.
            self._rooted = self._root or "Other Failures" in line.text
            self._numbers, self._headless = set(), not headed
            if beheaded is not None:
                self._where, self._entry = line, {beheaded[1]: beheaded[2].strip()}
            return []
        if line.origin != self._origin:
            return []
        self._left -= 1
        self._idle -= 1
        return self._line(line)

    def _line(self, line: Line) -> list[Event]:
        field = _FIELD.match(line.text)
        if field and self._where is not None:
            name, value = field.groups()
            self._doubled = self._doubled or name in self._entry
            self._entry.setdefault(name, value.strip())
            if name == "exitcode":
                self._where = line
            self._idle = _LINES_WITHOUT_ENTRY
            return []
        done: list[Event] = []
        if entry := _ENTRY.match(line.text):
            done = self._flush()
            self._numbers.add(int(entry.group(1)))
            self._where, self._entry, self._idle = line, {}, _LINES_WITHOUT_ENTRY
            self._begun = True
        elif _ROOT.match(line.text):
            done = self._flush()
            self._root = self._rooted = True
        elif _OTHERS.match(line.text):
            done = self._flush()
            self._root = False
        elif _RULER.match(line.text) and self._where is not None:
            done = self._over(line)
        elif self._left <= 0 or self._idle <= 0:
            return list(self.close())
        elif self._where is not None and re.match(r"^\s+\S", line.text) and "traceback" in self._entry:
            self._entry["message"] = line.text.strip()
        return done

    def _one_line(self, line: Line, match: re.Match[str]) -> Event:
        """Return the event of an entry that stands in one line."""
        rank, local, code, pid = (int(number) for number in match.groups())
        self._where, self._entry, self._head, self._begun = None, {}, None, False
        where = replace(line, rank=rank, local_rank=local)
        root = self._root or "Root Cause" in line.text[: match.start()]
        return Exit.of(where, code=code, pid=pid, via="table", first=root)

    def _flush(self, ended: bool = False) -> list[Event]:
        """Return the event of the entry that is being read; `ended`: the text ends in it."""
        where, entry = self._where, self._entry
        self._where, self._entry = None, {}
        torn = self._doubled or (self._begun and not ended and not entry.keys() >= _ALWAYS)
        self._begun = self._doubled = False
        if where is None:
            return []
        if torn:
            self._torn(where)
        rank = re.match(r"(\d{1,7}) \(local_rank: (\d{1,6})\)", entry.get("rank", ""))
        code = re.match(r"(-?\d{1,4}) {1,6}\(pid: (\d{1,9})\)", entry.get("exitcode", ""))
        if not code:
            return []
        host = entry.get("host") or None
        where = replace(where, host=host, time=_table_time(entry.get("time", "")) or where.time)
        if rank:
            where = replace(where, rank=int(rank.group(1)), local_rank=int(rank.group(2)))
        self._head = None
        message = entry.get("message") or entry.get("msg")
        return [
            Exit.of(
                where, code=int(code.group(1)), pid=int(code.group(2)), host=host, via="table", first=self._root,
                message=quote(message) if message else None,
            )
        ]  # fmt: skip

    def _torn(self, where: Line) -> None:
        if not self.notes:
            text = "the launcher's table of failures is not whole: it breaks off, or an entry has fields twice or lacks some"
            self.notes.append(
                Note("torn_table", text, where.file, where.number, "look at the launcher's own output")
            )

    def close(self) -> Iterable[Event]:
        """Return the entry that the table, or the file, ends in."""
        where = self._where
        return self._over(where, ended=True) if where is not None else self._over(None)

    def _over(self, where: Line | None, ended: bool = False) -> list[Event]:
        """Return the table's last entry, and say so where others are missing: they count from 1, and the root cause is number 0."""
        done = self._flush(ended)
        numbers, beheaded = self._numbers, int(self._headless)
        lost = max(numbers, default=0) - len(numbers - {0})
        if where is not None and (lost > beheaded or ((numbers - {0} or beheaded) and not self._rooted)):
            self._torn(where)
        if self._head is not None:
            done = [*done, self._head.event(WorkersSwept, failed="a worker")]
        self._head = None
        self._origin, self._rooted, self._headless, self._numbers = None, False, False, set()
        return done


def _table_time(text: str) -> float | None:
    try:
        return datetime.strptime(text[:19], "%Y-%m-%d_%H:%M:%S").replace(tzinfo=timezone.utc).timestamp()
    except ValueError:
        return None


def sniff_error_file(head: bytes) -> bool:
    """Return whether the bytes begin an error file (`TORCHELASTIC_ERROR_FILE`)."""
    return bool(re.match(rb'\s*\{\s*"message"\s*:\s*[{"]', head))


def read_error_file(data: bytes, file: str) -> list[Event]:
    """Return the `exception` and the `exit` that a worker's error file tells; nothing where it is not one. Never raises."""
    try:
        content = json.loads(data[: 1 << 24].decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return []
    record = content.get("message") if isinstance(content, dict) else None
    if isinstance(record, str):
        record = {"message": record}
    if not isinstance(record, dict) or "message" not in record:
        return []
    extra = record.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    time = _number(extra.get("timestamp"))
    events = _exceptions(str(extra.get("py_callstack") or ""), file)
    message = strip_prefix(str(record["message"])[:2000], 1, file)
    if not events:
        kind, _, rest = message.text.partition(": ")
        events = [message.event(RankException, type=kind.rsplit(".", 1)[-1], message=rest)]
    code = _number(record.get("errorCode"))
    line = replace(message, time=time)
    return [
        *(replace(event, time=time) for event in events),
        Exit.of(line, code=int(code) if code else 1, via="error_file", message=quote(message.text)),
    ]


def _exceptions(stack: str, file: str) -> list[Event]:
    parser = TracebackParser()
    events: list[Event] = []
    for number, text in enumerate(stack.splitlines()[:5000], 1):
        events.extend(parser.feed(strip_prefix(text, number, file)))
    return [replace(event, line=1) for event in [*events, *parser.close()]]


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 1e15 else None
