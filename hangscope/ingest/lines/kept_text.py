"""The text that is kept of a log, before its errors and at its end, as lines that are stripped of their prefixes when they are asked for.

What a program prints has no form and there may be millions of lines of it. So lines that differ only in digits are one wording, and
of each wording and writer as few lines are parsed as a reader needs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from hangscope.ingest.files.numbering import FILE_TITLE, of_file_titles, of_pods
from hangscope.ingest.lines.prefixes import Line, clean, strip_prefix
from hangscope.ingest.lines.rank_words import by_itself, column_of, have_tails, ranks_titled, tail_of
from hangscope.ingest.lines.vocabulary import of_people
from hangscope.model.regex import regex

_MOST = 400  # lines from which the form of a prefix is taken
_HEAD = 120  # bytes of a line that hold a time and a rank
_CUT = 1000  # bytes of a line
_TAIL = 24  # bytes at the end of a line that hold a rank
_AS_ZERO = bytes.maketrans(b"123456789", b"000000000")
#: what changes from line to line in the prefix of one writer
_TIME = regex(rb"\d{4}[-/]\d\d[-/]\d\d|\d\d:\d\d:\d\d(?:[.,]\d{1,9})?")
#: tqdm's bar, behind which another writer goes on in the same line
_BAR_END = regex(rb"[\d.?](?:it/s|s/it)(?:, [^\]]{1,200})?\](?=[^\s\]])")
_HEAD_END = regex(rb"^.{0,40}(?:" + _TIME.pattern + rb")[Z\]|,: -]{0,4}")
#: `[rank 0] batches: 1950   [rank 1] batches: 1872`
_SIDE_BY_SIDE = regex(rb"(?:^|(?<=\s\s)|(?<=[|;,] ))\[?rank \d{1,7}(?:\] |[:=] ?)(?=\S)")
_FILE = regex(r"^[=#*>-]{0,6} ?[\w./-]{1,200}\.(?:log|txt|out|err) ?[=#*<:-]{0,6}$")
_COMMAND = regex(r"^\S{0,60}[$#] \S")
#: an error, or a frame of gdb
_CUT_OUT = regex(r"\w(?:Error|Exception)\b|^#\d{1,3} |\bgdb\b")
#: a frame of py-spy
_FRAME = regex(rb"^\s{1,12}\S.{0,200} \(\S{1,400}:\d{1,7}\)\s*$")


def _is_apart(text: str) -> bool:
    """Return whether a line behind an empty one is no log's: a person's sentence, or the edge of a table."""
    return text[:1] in ("+", "|") or of_people(text)


def _end_of(raw: bytes) -> str:
    return raw[-_TAIL:].decode("utf-8", "replace").rstrip()


def _unglued(state: bytes) -> Sequence[bytes]:
    """Return the bars and the lines that share one line because a bar ends without a line feed, or of which each is another rank's.

    Whole where a launcher's prefix begins it.
    """
    starts = (
        [m.start() for m in _SIDE_BY_SIDE.finditer(state)] if state.startswith((b"[rank ", b"rank ")) else []
    )
    if len(starts) > 1:
        return [state[a:b].rstrip() for a, b in zip(starts, [*starts[1:], None], strict=True)]
    if state.startswith(b"[") or (b"it/s" not in state and b"s/it" not in state):
        return (state,)
    ends = [match.end() for match in _BAR_END.finditer(state)]
    return [state[a:b] for a, b in zip([0, *ends], [*ends, None], strict=True)] if ends else (state,)


class KeptText:
    """`raw` are the lines as they were printed, in order and without empty ones, `numbers` their numbers: a progress bar has a line for each state.

    From `end` on they are the end of the log; `complete` if nothing of the log is missing.
    """

    def __init__(self, windows: Sequence[tuple[int, bytes]], file: str = "", own: bool = False) -> None:
        """Take the text as `Scan` keeps it: (number of the first line, bytes); windows may overlap. `own`: one rank printed it."""
        self.file, self.own = file, own
        self.numbers: list[int] = []
        self.raw: list[bytes] = []
        for first, data in windows:
            # the last line of a window may be cut, and is whole in the next one
            held = bisect_left(self.numbers, first)
            del self.numbers[held:], self.raw[held:]
            for number, text in enumerate(data.split(b"\n"), first):
                states = [part[:_CUT] for state in text.split(b"\r") if state for part in _unglued(state)]
                self.raw += states
                self.numbers += [number] * len(states)
        self.end = bisect_left(self.numbers, windows[-1][0]) if windows else 0
        self.complete = bool(windows) and windows[-1][0] == 1
        self._wordings: dict[bytes, list[int]] = {}
        for place, text in enumerate(self.raw):
            self._wordings.setdefault(text.translate(_AS_ZERO), []).append(place)
        self._lines: dict[int, Line] = {}

    def line(self, place: int) -> Line:
        """Return a line without its prefixes."""
        if place not in self._lines:
            text = self.raw[place].decode("utf-8", "replace")
            self._lines[place] = strip_prefix(text, self.numbers[place], self.file)
        return self._lines[place]

    def own_line(self, place: int) -> Line:
        """Return a line without its prefixes and without the rank that its program put in front of it."""
        line = by_itself(self.line(place), self._column, tails=self._tails)
        rank = self._below_titles.get(place) if line.rank is None else None
        if rank is None:
            return line
        return replace(
            line, text=line.text[self._margins[rank] :], rank=rank, origin=f"{line.origin}<{rank}>"
        )

    @cached_property
    def sections(self) -> Mapping[int, int]:
        """The rank of each line (by place) that states none and is below a title of one rank: `==> log.rank2 <==`, `rank 3:`.

        A section ends at the next title, at the name of a file of no rank, at a command, and at an empty line before a person's
        sentence or a table. Empty where fewer than two ranks have titles.
        """
        if self.own or not self.complete:
            return {}
        found, titles = dict[int, int](), set[int]()
        now: int | None = None
        before = 0
        lines = [self.line(place) for place in range(len(self.numbers))]
        counted = {**of_file_titles(line.text for line in lines), **of_pods([line.text for line in lines])}
        for place, (line, number) in enumerate(zip(lines, self.numbers, strict=True)):
            text = line.text
            named = ranks_titled(text) if line.rank is None else ()
            named = named or ((counted[text],) if text in counted else ())
            if len(named) == 1 and not text.startswith((" ", "\t")):
                now = named[0]
                titles.add(now)
            elif (
                named
                or _FILE.match(text)
                or _COMMAND.match(text)
                or (number > before + 1 and _is_apart(text))
            ):
                now = None
            elif now is not None and line.rank is None:
                found[place] = now
            before = number
        return found if len(titles) > 1 else {}

    @cached_property
    def _below_titles(self) -> Mapping[int, int]:
        """The sections of a short text without stacks, whose lines programs printed.

        Below the name of a file is a log; below another title may be what a person cut out of one, and an error there hides what came after.
        """
        if len(self.raw) > _MOST or any(map(_FRAME.match, self.raw)):
            return {}
        texts = [self.line(place).text for place in range(len(self.raw))]
        files = any(map(FILE_TITLE.match, texts))
        cut = {rank for place, rank in self.sections.items() if not files and _CUT_OUT.search(texts[place])}
        return {
            place: rank
            for place, rank in self.sections.items()
            if rank not in cut and not of_people(texts[place])
        }

    @cached_property
    def _margins(self) -> Mapping[int, int]:
        """How many blanks begin every line of a rank's sections."""
        margins: dict[int, int] = {}
        for place, rank in self.sections.items():
            text = self.line(place).text
            margins[rank] = min(len(text) - len(text.lstrip(" ")), margins.get(rank, len(text)))
        return margins

    @cached_property
    def _tails(self) -> bool:
        return not self.own and have_tails(_end_of(raw) for raw in self.raw[-_MOST:])

    @cached_property
    def _column(self) -> re.Pattern[str] | None:
        if self.own:
            return None
        # torch's own prefix
        raws = (raw[:_HEAD] for raw in self.raw[-_MOST:] if not raw.startswith(b"[rank"))
        heads = (_HEAD_END.sub(b"", raw).decode("utf-8", "replace") for raw in raws)
        if (column := column_of([*heads])) is not None or len(self.raw) > _MOST:
            return column
        return column_of(
            [line.text[:_HEAD] for line in map(self.line, range(len(self.raw))) if line.rank is None]
        )

    def by_writer(self) -> list[Sequence[int]]:
        """Return the places of the lines of one wording and one writer, those that were printed last first."""
        found = [of_one for places in self._wordings.values() for of_one in self._by_writer(places)]
        return sorted(found, key=lambda places: -places[-1])

    def _by_writer(self, places: Sequence[int]) -> Iterable[Sequence[int]]:
        """Return the places of one wording by writer: by what the prefix, or the program before its own text, says besides the time."""
        if len(places) == 1:
            return [places]
        sections: dict[int | None, list[int]] = {}
        for place in places if self._below_titles else ():
            sections.setdefault(self._below_titles.get(place), []).append(place)
        if len(sections) > 1:
            return [of_one for section in sections.values() for of_one in self._by_writer(section)]
        found: dict[bytes, list[int]] = {}
        if self._tails and tail_of(_end_of(self.raw[places[-1]])):
            for place in places:
                found.setdefault(self.raw[place].rpartition(b" ")[2], []).append(place)
            return found.values()
        last, text = self.raw[places[-1]], self.own_line(places[-1]).text.encode()
        prefix = last[: len(last) - len(text)] if last.endswith(text) else last
        times = [match.span() for match in _TIME.finditer(prefix)]
        edges = zip([(0, 0), *times], [*times, (len(prefix), 0)], strict=True)
        parts = [slice(end, start) for (_, end), (start, _) in edges]
        for place in places:
            found.setdefault(b"".join([self.raw[place][part] for part in parts]), []).append(place)
        return found.values()

    @cached_property
    def texts(self) -> list[tuple[int, str]]:
        """Return (number, text) of the lines at the end of the log as they were printed; of a progress bar the last state."""
        lines = dict(zip(self.numbers[self.end :], self.raw[self.end :], strict=True))
        texts = ((number, clean(raw.decode("utf-8", "replace")).rstrip()) for number, raw in lines.items())
        return [(number, text) for number, text in texts if text]
