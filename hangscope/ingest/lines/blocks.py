r"""Statements of several lines: a block is declared as data in the module of its event, and one parser reads all of them.

    GPU = block(
        says(r"^\|\s{1,4}(?P<gpu>\d{1,3})\s{1,4}\S.{0,60}\| "),  # the line that it begins with
        regex(r"\| {1,8}(?P<percent>\d{1,3})%"),  # what further lines state
        lines=1,
        made=_use,
    )

`made` makes the events from what the named groups of its lines caught. A line belongs to the block of its writer, by the prefixes of
launchers and torch. c10 prints the rank on the first line only, so a line without one belongs to the block that its host or task began
last.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.forms import Form, FormParser, LineParser, literals_of, typed
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event

_SILENCE = 2000  # lines without a statement, whoever printed them, after which a block is over
_OPEN = 512  # blocks that are read at a time


@dataclass(slots=True, eq=False)
class Found:
    """A block as far as it was read: (line, what matched in it), the first line first, and the form of that one."""

    form: Form
    parts: list[tuple[Line, re.Match[str]]]
    left: int
    idle: int = 0  # lines of this writer in a row that stated nothing

    @property
    def first(self) -> Line:
        """Return the line that it begins with."""
        return self.parts[0][0]

    @property
    def latest(self) -> Line:
        """Return the last line that stated anything."""
        return self.parts[-1][0]

    def all(self, *names: str) -> Iterator[tuple[str, ...]]:
        """Yield what the groups of these names caught, of each match in which all of them took part."""
        for _, match in self.parts:
            values = [match.groupdict().get(name) for name in names]
            if None not in values:
                yield tuple(value for value in values if value is not None)

    def last(self, name: str) -> str | None:
        """Return what a group caught last, None where it caught nothing."""
        return next((value for (value,) in reversed([*self.all(name)])), None)

    def caught(self, kind: type[Event]) -> dict[str, Any]:
        """Return the fields of a kind of event that groups are named after, and those that the first line's form implies."""
        return {**{n: v for _, match in self.parts for n, v in typed(kind, match)}, **self.form.known}

    def belongs(self, line: Line) -> bool:
        """Return whether no prefix shows that another process printed a line."""
        first = self.first
        who = (line.host, line.local_rank, line.task) == (first.host, first.local_rank, first.task)
        return who and (line.rank is None or first.rank in (None, line.rank))


#: what makes the events of a block, and notes on what is damaged
Made = Callable[[Found], Iterable[Event | Note]]


@dataclass(frozen=True, slots=True)
class Block:
    """What begins a block, and what its further lines state.

    It is over at a line that `ends` it, which counts too, after so many `lines`, or when more than `gap` in a row state nothing. One
    line may both begin and end it; no later line ends a block whose patterns have matched nothing yet.
    """

    begins: tuple[Form, ...]
    states: tuple[re.Pattern[str], ...]
    lines: int
    ends: re.Pattern[str] | None
    gap: int
    made: Made

    def matches(self, line: Line) -> list[re.Match[str]]:
        """Return what a line states: the matches of the first pattern that is in it."""
        return next((found for one in self.states if (found := list(one.finditer(line.text)))), [])

    def matches_whole(self, line: Line) -> list[re.Match[str]]:
        """Return what a line states whose own beginning looks like a prefix: `5: [layer_3]`."""
        return [match for one in self.states if line.raw != line.text and (match := one.match(line.raw))][:1]


def block(
    *patterns: Form | re.Pattern[str],
    lines: int,
    ends: re.Pattern[str] | None = None,
    gap: int | None = None,
    made: Made,
) -> Block:
    """Return a block: forms begin it, patterns are what further lines state, the first that matches counts."""
    begins = tuple(part for part in patterns if isinstance(part, Form))
    states = tuple(part for part in patterns if not isinstance(part, Form))
    return Block(begins, states, lines, ends, lines if gap is None else gap, made)


class BlockParser(LineParser):
    """Reads blocks of one kind, those of each writer separately."""

    def __init__(self, declared: Block) -> None:
        self._block = declared
        self.literals = literals_of(declared.begins)
        self._open: list[Found] = []

    def feed(self, line: Line) -> Iterable[Event | Note]:
        """Read one line; return the events of the blocks that it completes."""
        silent = [found for found in self._open if line.number - found.latest.number > _SILENCE]
        done = [event for found in silent for event in self._over(found)]
        mine = [found for found in self._open if found.belongs(line)]
        exact = [found for found in mine if found.first.rank == line.rank]
        found = next(reversed(exact or mine), None)
        stated = self._block.matches(line) if found is not None else []
        if self._open and not stated and (stated := self._block.matches_whole(line)):
            found = found or self._open[-1]
        ends = self._block.ends.search(line.text) if self._block.ends is not None else None
        if found is not None and self._block.states and len(found.parts) == 1:
            ends = None
        begin = None if stated or (ends and found is not None) else self._begins(line)
        if begin is not None:
            done += self._over(found) if found is not None and found in exact else []
            found = begin
            self._open.append(found)
        if found is None:
            return done
        if begin is None:
            found.left -= 1
            found.idle = 0 if stated else found.idle + 1
            found.parts += [(line, match) for match in stated]
        if ends is not None:
            found.parts.append((line, ends))
        if ends is not None or found.left <= 0 or found.idle > self._block.gap or len(self._open) > _OPEN:
            done += self._over(found)
        return done

    def _begins(self, line: Line) -> Found | None:
        for form in self._block.begins:
            if form.literal in line.text and (match := form.pattern.search(line.text)):
                return Found(form, [(line, match)], self._block.lines)
        return None

    def _over(self, found: Found) -> list[Event | Note]:
        self._open.remove(found)
        return list(self._block.made(found))

    def close(self) -> Iterable[Event | Note]:
        """Return the blocks that the text ends in."""
        return [event for found in list(self._open) for event in self._over(found)]


def parsers_of(*modules: ModuleType) -> list[LineParser]:
    """Return what reads the forms and the blocks that modules declare."""
    forms = [parser for module in modules if (parser := FormParser(module)).literals]
    values = (value for module in modules for value in vars(module).values())
    return [*forms, *(BlockParser(value) for value in values if isinstance(value, Block))]
