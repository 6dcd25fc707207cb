"""Python tracebacks, one event each, separated by writer where several ranks interleave.

    [rank2]: Traceback (most recent call last):
    [rank2]:   File "train.py", line 69, in train_step
    [rank2]:     raise ValueError("bad sample")
    [rank2]: ValueError: bad sample

(CPython Lib/traceback.py; torch prefixes each line since 2.3, torch/distributed/distributed_c10d.py.) Of
chained exceptions the first is reported. The launcher's own traceback belongs to no rank.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import field, replace

from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.prefixes import REPLACED, Line, quote
from hangscope.ingest.lines.vocabulary import words
from hangscope.ingest.torch_logs.symptoms import is_check, is_symptom
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack, is_library
from hangscope.model.regex import regex

_FRAMES_KEPT = 200
_OPEN_LINES = 3000
_LOST_AFTER = 20_000  # lines of others, after which a silent writer will not complete its traceback
_LOOK_EVERY = 1000
_CHAIN_LINES = 60
_MESSAGE_LIMIT = 2000
_MESSAGE_LINES = 4

#: A rank in parentheses is the one that raised it, whoever prints it (torch/distributed/checkpoint/api.py).
_HEADER = regex(
    r"^(?:\s*(?:\^C)?(?:Original )?|Exception in thread .{0,100}|\S[^\x22']{1,160}\b(?:exception|error|failed|crashed)\b[^\x22']{0,60}: )Traceback \(most recent call last\):(?: \(RANK (\d{1,7})\))?\s*$"
)
_FRAME = regex(r'^( {2,6})File "(.{1,1000}?)", line (\d{1,9})(?:, in (.{1,300}))?\s*$')
#: What `ray.get` raises: the frames below are those of the actor or task with that process id (python/ray/exceptions.py).
_OF_AN_ACTOR = regex(
    r"^(?:ray\.exceptions\.)?\w{1,60}(?:\(\w{1,60}\))?: (?:\x1b\[\d{1,3}m)?ray::.{1,300}?\(pid=(\d{1,9})\b"
)
_MARKS = regex(r"^\s*(?:[~^][~^\s]*$|\[Previous line repeated \d+ more times?\])")
_EXCEPTION = regex(r"^ ?((?:[A-Za-z_]\w{0,100}\.){0,12}([A-Za-z_]\w{0,100}))(?:: ?(.*))?$")
_LEVELS = frozenset({"INFO", "WARNING", "ERROR", "DEBUG", "CRITICAL", "Traceback", "NOTE", "WARN", "FATAL"})
_CHAINED = (
    "During handling of the above exception, another exception occurred",
    "The above exception was the direct cause of the following exception",
)
_BARE = regex(r"^((?:[A-Za-z_]\w{0,100}\.){0,12}[A-Za-z_]\w{0,100}(?:Error|Exception))(?:: (.*)|$)")


class RankException(Event, kind="exception", same_by=("type", "message", "frames"), prints_group_rank=True):
    """A Python traceback, at its last line; of chained ones the first, except one that an interrupt ended.

    `type` is empty where the last line is missing (`truncated`). `code` is the source text of the deepest user frame; `symptom`:
    the communication layer noticed a peer's failure or a mismatch of calls, so that it is no cause of its own; `torn`: the header
    or all frames are missing, so that the last line may belong to another exception, or to one that was caught; `mangled`: lines
    between them are of no traceback.
    """

    type: str
    message: str
    frames: Stack = ()
    code: str | None = None
    symptom: bool = False
    truncated: bool = False
    torn: bool = False
    mangled: bool = False

    @property
    def by_check(self) -> bool:
        """Return whether a check raised it that compares what ranks call or build."""
        return self.symptom and is_check(self.type, self.message)


@dataclass(slots=True)
class _Traceback:
    """A traceback that is being read, then its exception, until it is known that none is chained to it."""

    where: Line
    fed: int  # lines of the log when it had its last one
    headed: bool = True
    mangled: bool = False
    chained: bool = False
    original: bool = False
    rank: int | None = None  # as the header names it
    pid: int | None = None  # of the actor whose traceback this one quotes
    rows: list[tuple[Frame, str]] = field(default_factory=list)  # outermost first, each with its source text
    interleaved: int = 1  # tracebacks of writers without prefixes, line by line
    left: int = _OPEN_LINES
    kind: str = ""
    message: str = ""
    more: int = 0  # further lines of its message
    linked: bool = False

    def add(self, frame: re.Match[str]) -> None:
        """Add a frame; interleaved tracebacks show each of them several times."""
        row = Frame(frame[4] or "<module>", frame[2], int(frame[3]))
        if self.interleaved == 1 or all(row != known for known, _ in self.rows):
            self.rows.append((row, ""))
        if len(self.rows) > _FRAMES_KEPT:
            del self.rows[20]

    def event(self, truncated: bool = False) -> Iterator[Event]:
        """Yield the exception, unless it is the launcher's own."""
        of_a_launcher = any(words("launchers_files").search(frame.file) for frame, _ in self.rows[:3])
        if self.where.rank is None and (of_a_launcher or words("launchers_exceptions").search(self.kind)):
            return
        code = next((code for frame, code in reversed(self.rows) if not is_library(frame.file)), "")
        own = words("raised_by").search(self.message)
        yield self.where.event(
            RankException,
            rank=self.rank,
            pid=self.pid,
            group_rank=int(own[own.lastindex or 1]) if own is not None else None,
            type=self.kind,
            message=quote(self.message, _MESSAGE_LIMIT),
            frames=tuple(frame for frame, _ in reversed(self.rows)),
            code=quote(code, 300) if code else None,
            symptom=is_symptom(self.kind, self.message),
            truncated=truncated,
            torn=not (self.headed and self.rows),
            mangled=self.mangled,
        )


class TracebackParser(LineParser):
    """Collects tracebacks per writer. A traceback that the log begins within is read from its first frame on."""

    literals = (b"Traceback (most recent call last)", b'  File "', b"Error: ", b"Exception: ")

    def __init__(self) -> None:
        self._open: dict[str, _Traceback] = {}
        self._done: dict[str, _Traceback] = {}
        self._fed = 0

    @property
    def wants_more(self) -> bool:
        """Whether a traceback is open or could still be chained."""
        return bool(self._open or self._done)

    def feed(self, line: Line) -> Iterable[Event]:
        """Read one line; return the exceptions that it shows to be complete."""
        self._fed += 1
        return [*self._age(), *self._line(line.origin, line)]

    def close(self) -> Iterable[Event]:
        """Return what the end of the file completes."""
        given_up = [event for key in list(self._open) for event in self._give_up(key)]
        return [*given_up, *(event for key in list(self._done) for event in self._emit(key))]

    def _line(self, key: str, line: Line) -> Iterator[Event]:
        text, opened = line.text, self._open.get(key)
        if (header := _HEADER.match(text)) and len(text) - len(text.lstrip()) <= 1:
            yield from self._begin(key, line, header)
        elif any(mark in text for mark in _CHAINED):
            if key in self._done:
                self._done[key].linked = True
        elif opened is not None:
            yield from self._inside(key, opened, line)
        elif not self._continues(key, text):
            frame = _FRAME.match(text)
            if frame and len(frame[1]) == 2 and frame[4]:  # the log begins within this traceback
                above = next((k for k, t in self._open.items() if t.where.number == line.number - 1), None)
                # Of a logger's record only the first line has a prefix.
                headed = self._open.pop(above) if above is not None and not self._open[above].rows else None
                rank = headed.where.rank if headed is not None else None
                self._open[key] = _Traceback(line, self._fed, headed=headed is not None, rank=rank)
                self._open[key].add(frame)
            else:
                yield from self._bare(key, line)

    def _begin(self, key: str, line: Line, header: re.Match[str]) -> Iterator[Event]:
        opened = self._open.get(key)
        if opened is not None and not opened.rows:
            opened.interleaved += 1
            return
        if opened is not None:
            yield from self._give_up(key)
        done = self._done.get(key)
        original = line.text.lstrip().startswith("Original ")
        chained = done is not None and (done.linked or original)
        if not chained:
            yield from self._emit(key)
        rank = int(header[1]) if header[1] else None
        self._open[key] = _Traceback(line, self._fed, chained=chained, original=original, rank=rank)

    def _continues(self, key: str, text: str) -> bool:
        """Add an indented line to a message that ends in a colon: the rest of the message follows."""
        done = self._done.get(key)
        if done is None or text[:1] not in " \t" or not text.strip() or _FRAME.match(text):
            return False
        if not done.more and not done.message.rstrip().endswith(":"):
            return False
        if done.more < _MESSAGE_LINES:
            joint = "; " if done.more else " "
            done.message = f"{done.message.rstrip()}{joint}{text.strip()}"[:_MESSAGE_LIMIT]
            done.more += 1
        return True

    def _inside(self, key: str, opened: _Traceback, line: Line) -> Iterator[Event]:
        text = line.text
        opened.left -= 1
        opened.fed = self._fed
        if opened.left <= 0:
            yield from self._give_up(key)
        elif frame := _FRAME.match(text):
            opened.add(frame)
        elif not text.strip() or _MARKS.match(text):
            return
        elif actor := _OF_AN_ACTOR.match(text):
            opened.pid = int(actor[1])
            opened.rows.clear()
        elif text.startswith("    ") and opened.rows:
            last, code = opened.rows[-1]
            opened.rows[-1] = (last, code or text.strip())
        elif (match := _EXCEPTION.match(text)) and match[1] not in _LEVELS:
            message = match[3]
            unindented = message is not None and not message.startswith("  ")
            # `socket.timeout` is one, a word of a torn line is not.
            named = not match[1].islower() or "." in match[1]
            if (
                words("exception_types").search(match[2])
                or (opened.rows and unindented and named)
                or (text.strip().isidentifier() and not text.strip().islower())  # no rest of a wrapped line
            ):
                yield from self._exception(key, opened, line, match[1], (message or "")[:_MESSAGE_LIMIT])
        elif text.startswith("    ") or REPLACED in text:  # a line of code without its frame, or no line
            opened.mangled = True

    def _exception(
        self, key: str, opened: _Traceback, line: Line, kind: str, message: str
    ) -> Iterator[Event]:
        finished = replace(opened, where=line, kind=kind, message=message, left=_CHAIN_LINES)
        if opened.interleaved > 1:
            opened.interleaved -= 1
            yield from finished.event()
            return
        del self._open[key]
        done = self._done.get(key)
        # A worker's exception is quoted in the one raised for it; a rank that is interrupted survived what it was handling.
        interrupted = (
            done is not None
            and done.kind != kind == "KeyboardInterrupt"
            and not is_symptom(done.kind, done.message)
        )
        if opened.chained and not (opened.original or interrupted) and done is not None:
            done.linked, done.left = False, _CHAIN_LINES
            return
        if not (opened.original or interrupted):
            yield from self._emit(key)
        self._done[key] = finished

    def _bare(self, key: str, line: Line) -> Iterator[Event]:
        """Take an exception line without its traceback: a log's tail, or a message that a program printed."""
        match, done = _BARE.match(line.text), self._done.get(key)
        # Alone on its line it is an exception's only where torch says whose line it is.
        if match is None or (match[2] is None and not line.raw.startswith("[rank")):
            return
        message = match[2] or ""
        if done is not None and (
            done.kind.rsplit(".", 1)[-1] == match[1].rsplit(".", 1)[-1] or done.message in line.text
        ):
            return
        yield from self._emit(key)
        bare = _Traceback(line, self._fed, headed=False, kind=match[1], message=message[:_MESSAGE_LIMIT])
        yield from bare.event()

    def _age(self) -> Iterator[Event]:
        if self._open and self._fed % _LOOK_EVERY == 0:
            for key in [k for k, opened in self._open.items() if self._fed - opened.fed > _LOST_AFTER]:
                yield from self._give_up(key)
        for key in [key for key in self._done if key not in self._open]:
            self._done[key].left -= 1
            if self._done[key].left <= 0:
                yield from self._emit(key)

    def _give_up(self, key: str) -> Iterator[Event]:
        """Report a traceback whose last line never came as cut short."""
        opened = self._open.pop(key)
        yield from self._emit(key)
        if len(opened.rows) > 1:
            yield from opened.event(truncated=True)

    def _emit(self, key: str) -> Iterator[Event]:
        if key in self._done:
            yield from self._done.pop(key).event()
