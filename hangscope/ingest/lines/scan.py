"""A log read as a stream: only lines that hold a parser's literal are ever decoded.

Bytes come in blocks of 1 MiB, cut at line ends. A carriage return ends a line as well (progress bars), but
lines are counted as an editor counts them, by line feeds. A line longer than 64 KiB is cut; a block without
any line end is taken as one line. Nothing that grows with the file is kept: events are capped per kind and
writer, with a note that counts the rest.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, BinaryIO

from hangscope.errors import Note
from hangscope.ingest.lines.call_lines import CallParser
from hangscope.ingest.lines.forms import LineParser
from hangscope.ingest.lines.literals import finder_of
from hangscope.ingest.lines.pasted import LIMIT, repair
from hangscope.ingest.lines.prefixes import Line, is_headless, pieces, strip_prefix
from hangscope.ingest.lines.records import unwrapped
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

BLOCK = 1 << 20
LINE_LIMIT = 1 << 16
BEFORE_HIT = 1 << 12
WINDOW = 1 << 18
EVENTS_PER_WRITER = 200
EVENTS_IN_ALL = 60_000
_FILLER = b"\n\n\n"
WINDOW_OF_LINES = 1 << 14
_KINDS = 8  # of events that one line makes
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


@dataclass(slots=True)
class Scan:
    """The result of a pass over one log: events by line, notes, `lines` and bytes (`size`) read, and the raw text just before errors.

    `windows` are (number of the first line, bytes) of up to 256 KiB before a first error and at the end of the file, which hold the
    last line that a rank printed before it.
    """

    events: list[Event]
    notes: list[Note]
    lines: int
    size: int
    windows: list[tuple[int, bytes]]


def scan(stream: BinaryIO, file: str, parsers: Sequence[LineParser]) -> Scan:
    """Return what the parsers find in the stream, read once and to its end.

    A parser that raises loses that line and leaves a note. A stream that breaks off (damaged gz) leaves a
    note and what was read so far.
    """
    run = _Run(file, parsers)
    number = 1
    broken: list[str] = []
    blocks = _blocks(stream, broken)
    first, second = next(blocks, b""), next(blocks, b"")
    if first and not second and len(first) <= LIMIT:
        first, joined = repair(first)
        if joined:
            text = f"{joined} line breaks in the middle of a line, as a terminal makes them, were taken out"
            run.notes.append(Note("mended", text, file))
    for block in chain(filter(None, (first, second)), blocks):
        number = run.block(block + _FILLER, number)
    run.notes.extend(Note("truncated", f"the log breaks off: {error}", file, number) for error in broken)
    return run.finish(broken=bool(broken))


def _blocks(stream: BinaryIO, broken: list[str]) -> Iterator[bytes]:
    """Yield blocks of whole lines, with the lines of records in their place; name in `broken` what ended the stream."""
    carry, reads = b"", _reads(stream, broken)
    data = next(reads, b"")
    while data:
        after = next(reads, b"")
        cut = data.rfind(b"\n") + 1 or data.rfind(b"\r") + 1
        if not after or (not cut and len(carry) >= BLOCK):
            cut = len(data)
        if cut:
            yield unwrapped(carry + data[:cut])
        carry = data[cut:] if cut else carry + data
        data = after


def _reads(stream: BinaryIO, broken: list[str]) -> Iterator[bytes]:
    try:
        while data := stream.read(BLOCK):
            yield data
    except Exception as error:  # damaged gz and zst streams raise whatever their decoders choose
        broken.append(f"{error or type(error).__name__}"[:200])


class _Run:
    """One pass: which parsers see which line."""

    def __init__(self, file: str, parsers: Sequence[LineParser]) -> None:
        self.file = file
        self.by_bit = [(1 << i, p) for i, p in enumerate(parsers)]
        self.finder = finder_of(
            tuple((literal, 1 << i) for i, p in enumerate(parsers) for literal in p.literals)
        )
        self.in_bulk = {bit: parser for bit, parser in self.by_bit if isinstance(parser, CallParser)}
        self.fed: dict[int, LineParser] = dict(self.in_bulk)  # those that have seen a line, or may have
        self.notes: list[Note] = []
        self.kept = EventStore()
        self.bytes = 0
        self.last_number = 0
        self.windows: list[tuple[int, bytes]] = []
        self.before: tuple[int, bytes] = (1, b"")
        self.quiet_bytes = 0  # since the last error
        self.had_error = False
        self.failed: set[str] = set()
        self.headless = False

    def block(self, block: bytes, number: int) -> int:
        """Read one block whose first line has this number; return the number of the line after it."""
        end = len(block) - len(_FILLER)
        hits = self.finder.find(block)
        nth = at = counted = 0
        while True:
            wanted = sum(bit for bit, parser in self.fed.items() if parser.wants_more)
            if wanted:
                if at >= end:
                    break
                start, mask = at, wanted
            elif nth < len(hits):
                start, mask = hits[nth][0], 0
                low = max(at, start - LINE_LIMIT)
                start = max(block.rfind(b"\n", low, start), block.rfind(b"\r", low, start), low - 1) + 1
                start = max(start, hits[nth][0] - BEFORE_HIT)
                in_bulk = self.in_bulk.get(hits[nth][1])
                if in_bulk is not None:
                    number += block.count(b"\n", counted, start)
                    counted = start
                    at = in_bulk.run(block, start, number)
                    if at > start:
                        nth = bisect_left(hits, (at,), nth)
                        continue
            else:
                break
            stop = block.find(b"\n", start, start + LINE_LIMIT)
            stop = stop if stop >= 0 else min(start + LINE_LIMIT, end)
            bar = block.find(b"\r", start, stop)
            stop = bar if bar >= 0 else stop
            while nth < len(hits) and hits[nth][0] < max(stop, start + 1):
                mask |= hits[nth][1]
                nth += 1
            number += block.count(b"\n", counted, start)
            counted = start
            if stop > start:
                self._line(block[start:stop], number, mask, block, start)
            at = stop + 1 if block[stop : stop + 1] in (b"\n", b"\r") else stop
            at = max(at, start + 1)
        self.bytes += end
        self.last_number = number + block.count(b"\n", counted, end)
        self.before = (self.last_number, _tail(block[max(0, end - WINDOW - 1) : end]))
        self.quiet_bytes += end
        return self.last_number

    def _line(self, data: bytes, number: int, mask: int, block: bytes, start: int) -> None:
        text = data.decode("utf-8", "replace")
        parts = pieces(text)
        if len(parts) > 1 and is_headless(text) and not self.headless:
            self.headless = True
            self.notes.append(Note("contradiction", "a JSON record lacks its beginning", self.file, number))
        for piece in parts:
            line = strip_prefix(piece, number, self.file)
            for bit, parser in self.by_bit:
                if mask & bit:
                    self.fed[bit] = parser
                    events = self._keep(parser, number, parser.feed, line)
                    if not all(event.calm for event in events):
                        self._window(block, start, number)

    def _keep(
        self, parser: LineParser, number: int, ask: Callable[..., Iterable[Event | Note]], *what: Line
    ) -> list[Event]:
        """Keep what a parser returns when it is asked; return the events. Its own fault must not cost the rest of the log."""
        try:
            found = list(ask(*what))
        except Exception as error:
            name = type(parser).__name__
            if name not in self.failed:
                self.failed.add(name)
                text = f"{name} could not read a line: {type(error).__name__}"
                self.notes.append(Note("parser_failed", text, self.file, number))
            return []
        self.notes += [note for note in found if isinstance(note, Note)]
        events = [event for event in found if isinstance(event, Event)]
        self.kept.extend(events)
        return events

    def _window(self, block: bytes, start: int, number: int) -> None:
        """Keep the text before an error, unless an error close before it had its own."""
        quiet, self.quiet_bytes = self.quiet_bytes, 0
        if self.had_error and quiet < 8 * WINDOW:
            return
        self.had_error = True
        here = _tail(self.before[1] + block[:start] if start < WINDOW else block[start - WINDOW - 1 : start])
        self.windows = [*self.windows[-1:], (number - here.count(b"\n"), here)]

    def finish(self, broken: bool) -> Scan:
        for _, parser in sorted(self.fed.items()):
            self._keep(parser, self.last_number, parser.close)
        self.notes.extend(self.kept.notes(self.file))
        number, data = self.before
        if data:
            self.windows.append((number - data.count(b"\n"), data))
        events = self.kept.events()
        if _is_cut(data):
            self.notes.append(Note("truncated", "ends inside a line", self.file, self.last_number))
        # what would follow the last line may say more of the trouble that it reports, or that it is over
        in_trouble = any(e.line == self.last_number and not e.calm for e in events[-_KINDS:])
        if in_trouble and b"\n" in data and not (_is_cut(data) or broken or data.endswith((b"\n", b"\r"))):
            what = "ends without a line feed, so its last line may be cut"
            self.notes.append(Note("open_end", what, self.file, self.last_number))
        return Scan(events, self.notes, self.last_number, self.bytes, self.windows)


def _tail(data: bytes) -> bytes:
    """Return at most the last 256 KiB, from the start of a line on."""
    if len(data) <= WINDOW:
        return data
    cut = len(data) - WINDOW
    return data[data.find(b"\n", cut - 1) + 1 or cut :]


def _is_cut(data: bytes) -> bool:
    """Return whether a text ends inside a line: its last one has no line feed and is, numbers apart, the head of one before it."""
    *before, last = data[-WINDOW_OF_LINES:].translate(_DIGITS).split(b"\n")
    return bool(last.strip()) and last not in before and any(line.startswith(last) for line in before)


class EventStore:
    """Events with a cap: of each kind and writer the first and the last 200 stay.

    What a healthy job prints too counts apart: the start of a large job may not use up the room of its failure.
    """

    def __init__(self) -> None:
        self._kept: dict[Any, list[Event]] = {}
        self._totals = Counter[bool]()  # of calm kinds, and of all others
        self._dropped = Counter[str]()

    def extend(self, events: Iterable[Event]) -> None:
        """Add events in file order."""
        for event in events:
            key = (event.kind, event.rank, event.host, event.local_rank, event.task)
            full = self._totals[event.calm] >= EVENTS_IN_ALL
            if full and key not in self._kept:
                self._dropped[event.kind] += 1
                continue
            kept = self._kept.setdefault(key, [])
            kept.append(event)
            if full or len(kept) > 2 * EVENTS_PER_WRITER:
                del kept[min(EVENTS_PER_WRITER, len(kept) - 1)]  # the oldest of the last ones
                self._dropped[event.kind] += 1
            else:
                self._totals[event.calm] += 1

    def events(self) -> list[Event]:
        """Return what is kept, by line; events of one line stay in the order in which they came."""
        return sorted(chain(*self._kept.values()), key=lambda event: (event.line, event.kind))

    def notes(self, file: str) -> list[Note]:
        """Return one note per kind of which events were dropped."""
        return [
            Note("events_capped", f"{count} more {kind} lines were not kept", file)
            for kind, count in sorted(self._dropped.items())
        ]
