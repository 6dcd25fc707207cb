"""Python tracebacks, one event each, told apart by who prints them where several ranks interleave.

    [rank2]: Traceback (most recent call last):
    [rank2]:   File "train.py", line 69, in train_step
    [rank2]:     raise ValueError("bad sample")
    [rank2]: ValueError: bad sample

(CPython Lib/traceback.py; torch prefixes each line since 2.3, torch/distributed/distributed_c10d.py.) Of
chained exceptions the first is reported, with the rest as its chain. The launcher's own traceback is no
rank's exception.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import field

from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import Line, quote
from hangscope.ingest.torch_logs.exception_meaning import is_library, is_symptom
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.regex import regex

_FRAMES_KEPT = 200
_OPEN_LINES = 3000
_LOST_AFTER = 20_000  # lines of others; who began a traceback and was silent since will not end it
_LOOK_EVERY = 1000
_CHAIN_LINES = 60
_MESSAGE_LIMIT = 2000
_MESSAGE_LINES = 4

#: A rank in parentheses is the one that raised it, whoever prints it (torch/distributed/checkpoint/api.py).
_HEADER = regex(
    r"^(?:\s*(?:Original )?|Exception in thread .{0,100})Traceback \(most recent call last\):(?: \(RANK (\d{1,7})\))?\s*$"
)
_FRAME = regex(r'^( {2,6})File "(.{1,1000}?)", line (\d{1,9})(?:, in (.{1,300}))?\s*$')
_CARETS = regex(r"^\s*[~^][~^\s]*$")
_REPEATED = regex(r"^\s*\[Previous line repeated \d+ more times?\]")
_EXCEPTION = regex(r"^ ?((?:[A-Za-z_]\w{0,100}\.){0,12}([A-Za-z_]\w{0,100}))(?:: ?(.*))?$")
_TYPE = regex(
    r"(?:Error|Exception|Exit|Interrupt|Warning|Iteration|Timeout|Failure|Failed|Empty|Full|Mismatch|Abort\w{0,40}"
    r"|Closed)$"
)
_LEVELS = frozenset({"INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL", "Traceback", "NOTE", "WARN", "FATAL"})
_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_BARE = regex(r"^((?:[A-Za-z_]\w{0,100}\.){0,12}[A-Za-z_]\w{0,100}(?:Error|Exception)): (.*)$")

_LAUNCHER_TYPES = (
    "ChildFailedError",
    "ProcessRaisedException",
    "SignalException",
    "RendezvousTimeoutError",
    "RendezvousConnectionError",
    "RendezvousClosedError",
)
_LAUNCHER_FILE = regex(
    r"/bin/torchrun$|torch/distributed/(?:run|launch|launcher/api)\.py$|torch/distributed/elastic/(?:agent|"
    r"rendezvous)/"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankException(Event, kind="exception", same_by=("type", "message", "frames")):
    """A Python traceback's last line, once per traceback; of chained ones the first, but for one that an interrupt ended.

    `type` is empty where the last line is missing (`truncated`). `code` is the source text of the deepest user frame; `symptom`:
    what the communication layer noticed of a peer or of calls that do not fit, and no cause of its own; `chain`: (type, message)
    of the exceptions raised because of this one.
    `torn`: how it begins, or any frame, is not here, so that the last line may be another's, or an error's that was caught.
    """

    type: str
    message: str
    frames: Stack = ()
    code: str | None = None
    symptom: bool = False
    chain: tuple[tuple[str, str], ...] = ()
    truncated: bool = False
    torn: bool = False


@dataclass(slots=True)
class _Open:
    """A traceback that is being read. Frames outermost first, as printed, each with its source text."""

    first: Line
    frames: list[Frame] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    woven: int = 1
    left: int = _OPEN_LINES
    fed: int = 0  # lines of the log when it had its last one
    thread: str | None = None
    chained: bool = False
    original: bool = False
    headed: bool = False
    rank: int | None = None  # as the header names it


@dataclass(slots=True)
class _Done:
    """A finished exception that a chained one may still follow."""

    where: Line
    kind: str
    message: str
    opened: _Open
    chain: list[tuple[str, str]] = field(default_factory=list)
    linked: bool = False
    left: int = _CHAIN_LINES
    more: int = 0  # lines of its message


class TracebackParser(LineParser):
    """Collects tracebacks per writer. A traceback that the log begins within is read from its first frame on."""

    literals = (b"Traceback (most recent call last)", b'  File "', b"Error: ", b"Exception: ")

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._done: dict[str, _Done] = {}
        self._fed = 0

    @property
    def wants_more(self) -> bool:
        """Whether a traceback is open or could still be chained."""
        return bool(self._open or self._done)

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line; return the exceptions that it shows to be complete."""
        self._fed += 1
        events = self._age()
        key = line.origin
        text = line.text
        if (header := _HEADER.match(text)) and len(text) - len(text.lstrip()) <= 1:
            return [*events, *self._header(key, line, header)]
        if any(mark in text for mark in _CHAINED):
            if key in self._done:
                self._done[key].linked = True
            return events
        opened = self._open.get(key)
        frame = _FRAME.match(text)
        if opened is None and self._continues(key, text):
            return events
        if opened is None:
            if frame and len(frame.group(1)) == 2 and frame.group(4):
                self._open[key] = opened = _Open(line, fed=self._fed)  # the log begins within this traceback
                opened.frames.append(_row(frame))
                opened.code.append("")
                return events
            return [*events, *self._bare(key, line, text)]
        return [*events, *self._inside(key, opened, line, frame)]

    def _header(self, key: str, line: Line, header: re.Match[str]) -> list[Event]:
        opened = self._open.get(key)
        if opened is not None and not opened.frames:
            opened.woven += 1  # two writers without prefixes, line by line
            return []
        events = self._finish(key) if opened else []
        done = self._done.get(key)
        original = line.text.lstrip().startswith("Original ")
        chained = done is not None and (done.linked or original)
        if done is not None and not chained:
            events.extend(self._emit(key))
        rank = int(header[1]) if header[1] else None
        self._open[key] = _Open(
            line, fed=self._fed, chained=chained, original=original, headed=True, rank=rank
        )
        return events

    def _continues(self, key: str, text: str) -> bool:
        """Add an indented line to a message that ends in a colon: what follows it is what the error is about."""
        done = self._done.get(key)
        more = done is not None and text[:1] in " \t" and bool(text.strip()) and not _FRAME.match(text)
        if done is None or not more or not (done.more or done.message.rstrip().endswith(":")):
            return False
        if done.more < _MESSAGE_LINES:
            joint = " " if not done.more else "; "
            done.message = f"{done.message.rstrip()}{joint}{text.strip()}"[:_MESSAGE_LIMIT]
            done.more += 1
        return True

    def _inside(self, key: str, opened: _Open, line: Line, frame: re.Match[str] | None) -> list[Event]:
        text = line.text
        opened.left -= 1
        opened.fed = self._fed
        if opened.left <= 0:
            return self._finish(key)
        if frame:
            row = _row(frame)
            if opened.woven == 1 or row not in opened.frames:
                opened.frames.append(row)
                opened.code.append("")
            if len(opened.frames) > _FRAMES_KEPT:
                del opened.frames[20], opened.code[20]
            return []
        if not text.strip() or _CARETS.match(text) or _REPEATED.match(text):
            return []
        if text.startswith("    ") and opened.frames:
            opened.code[-1] = opened.code[-1] or text.strip()
            return []
        match = _EXCEPTION.match(text)
        if (
            match
            and match.group(1) not in _LEVELS
            and (
                _TYPE.search(match.group(2))
                or (opened.frames and match.group(3) is not None and not match.group(3).startswith("  "))
                or text.strip().isidentifier()
            )
        ):
            return self._exception(key, opened, line, match.group(1), match.group(3) or "")
        return []

    def _exception(self, key: str, opened: _Open, line: Line, kind: str, message: str) -> list[Event]:
        if opened.woven > 1:
            opened.woven -= 1
            shared = _Open(opened.first, list(opened.frames), list(opened.code), headed=opened.headed)
            return self._event(_Done(line, kind, message, shared))
        del self._open[key]
        done = self._done.get(key)
        # A worker's exception is quoted in the one that was raised for it; who is interrupted had survived what it was handling.
        interrupted = (
            done is not None and kind == "KeyboardInterrupt" and not is_symptom(done.kind, done.message)
        )
        if done is not None and (opened.original or interrupted):
            outer = (done.kind, quote(done.message))
            self._done[key] = _Done(line, kind, message, opened, [outer, *done.chain])
            return []
        if done is not None and opened.chained:
            done.chain.append((kind, quote(message)))
            done.linked, done.left = False, _CHAIN_LINES
            return []
        events = self._emit(key)
        self._done[key] = _Done(line, kind, message[:_MESSAGE_LIMIT], opened)
        return events

    def _bare(self, key: str, line: Line, text: str) -> list[Event]:
        """Take an exception line without its traceback: a log's tail, or a message that a program printed."""
        match = _BARE.match(text)
        if not match:
            return []
        done = self._done.get(key)
        if done is not None and (
            done.kind.rsplit(".", 1)[-1] == match.group(1).rsplit(".", 1)[-1] or done.message in text
        ):
            return []
        return [
            *self._emit(key),
            *self._event(_Done(line, match.group(1), match.group(2)[:_MESSAGE_LIMIT], _Open(line))),
        ]

    def _age(self) -> list[Event]:
        events: list[Event] = []
        if self._open and self._fed % _LOOK_EVERY == 0:
            for key in [k for k, o in self._open.items() if self._fed - o.fed > _LOST_AFTER]:
                events.extend(self._finish(key))
        for key in list(self._done):
            if key not in self._open:
                self._done[key].left -= 1
                if self._done[key].left <= 0:
                    events.extend(self._emit(key))
        return events

    def _finish(self, key: str) -> list[Event]:
        """Give up a traceback whose last line never came: it is reported as cut short."""
        opened = self._open.pop(key)
        events = self._emit(key)
        if len(opened.frames) < 2:
            return events
        return [*events, *self._event(_Done(opened.first, "", "", opened), truncated=True)]

    def _emit(self, key: str) -> list[Event]:
        done = self._done.pop(key, None)
        return self._event(done) if done else []

    def _event(self, done: _Done, truncated: bool = False) -> list[Event]:
        opened = done.opened
        rank_known = done.where.rank is not None
        short = done.kind.rsplit(".", 1)[-1]
        outer = [row.file for row in opened.frames[:3]]
        if not rank_known and (
            short in _LAUNCHER_TYPES or any(_LAUNCHER_FILE.search(path) for path in outer)
        ):
            return []
        user = next(
            (i for i in range(len(opened.frames) - 1, -1, -1) if not is_library(opened.frames[i].file)), None
        )
        return [
            done.where.event(
                RankException,
                rank=opened.rank,
                type=done.kind,
                message=quote(done.message, _MESSAGE_LIMIT),
                frames=tuple(reversed(opened.frames)),
                code=quote(opened.code[user], 300) if user is not None and opened.code[user] else None,
                symptom=is_symptom(done.kind, done.message),
                chain=tuple(done.chain),
                truncated=truncated,
                torn=not (opened.headed and opened.frames),
            )
        ]

    def close(self) -> Iterable[Event]:
        """Return what the end of the file completes."""
        events = [event for key in list(self._open) for event in self._finish(key)]
        return [*events, *(event for key in list(self._done) for event in self._emit(key))]


def _row(frame: re.Match[str]) -> Frame:
    return Frame(frame.group(4) or "<module>", frame.group(2), int(frame.group(3)))
