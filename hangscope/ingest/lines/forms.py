r"""The grammar of log lines: a form is declared in the class of its event, and everything that reads it follows from that.

    class HeartbeatTimeout(GroupEvent, same_by=("what",)):
        what: str
        pending: int | None = None
        forms = (says(r"watchdog got stuck for \d+ seconds", what="watchdog_stuck"),)
        also = (regex(r"workMetaList_\.size\(\)=(?P<pending>\d{1,9})"),)

A pattern's named groups are the event's fields, converted according to their annotations. The longest text that a pattern requires is
the literal that a log is searched for, so a form needs no entry anywhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from types import ModuleType
from typing import Any

from hangscope.errors import Note
from hangscope.ingest.lines.prefixes import Line
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event, hints_of
from hangscope.model.regex import regex

LEAST = 4  # bytes of a literal
_ITEMS_SHOWN = 4000  # characters of a list that are read

#: what a form's own function returns: further fields, whole events, or None where the line states nothing after all
Read = Callable[[Line, "re.Match[str]"], "Mapping[str, Any] | Event | Sequence[Event] | None"]


@dataclass(frozen=True, slots=True)
class Form:
    """One wording. `literal` is in every such line; `pattern` is searched only where it is."""

    literal: str
    pattern: re.Pattern[str]
    known: Mapping[str, Any]
    read: Read | None


def says(pattern: str, *, literal: str = "", read: Read | None = None, **known: str | bool | int) -> Form:
    """Return a form: `known` are fields that this wording implies, `read` finds what groups cannot.

    `literal` is needed where the pattern requires no text of its own, such as one with alternatives.
    """
    literal = literal or required_text(pattern)
    if len(literal.encode()) < LEAST:
        raise ValueError(f"no text to search a log for in {pattern!r}; give says(..., literal=)")
    return Form(literal, regex(pattern), known, read)


def any_of(literals: Iterable[str], pattern: str, **options: Any) -> tuple[Form, ...]:
    """Return forms of one pattern for each of several texts, one of which is in every such line."""
    return tuple(says(pattern, literal=literal, **options) for literal in literals)


_ATOM = regex(
    r"(?P<skip>\\[A-Za-z0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]|[.^$])|\\(?P<escaped>.)|(?P<open>\()|(?P<close>\))|(?P<either>\|)|(?P<plain>.)",
    re.DOTALL,
)
_OPTIONAL = regex(r"[?*]|\{0?,|\{0\}")
_REPEATED = regex(r"[+*?]\??|\{[\d,]{1,20}\}\??")


def required_text(pattern: str) -> str:
    """Return the longest text that every match of a pattern contains; empty where none is certain."""
    if pattern.startswith("(?i)"):
        return ""
    best = run = ""
    depth = at = 0
    while at < len(pattern):
        atom = _ATOM.match(pattern, at)
        assert atom is not None  # the last alternative takes any character
        at = atom.end()
        depth += (atom["open"] is not None) - (atom["close"] is not None)
        if atom["either"] and not depth:
            return ""
        text = atom["escaped"] or atom["plain"] or ""
        repeat = _REPEATED.match(pattern, at)
        run = "" if depth or not text or (repeat and _OPTIONAL.match(pattern, at)) else run + text
        best = max(best, run, key=len)
        if repeat:
            at, run = repeat.end(), ""
    return best


class LineParser:
    """Turns lines into events. It sees the lines with one of its literals, and while `wants_more` every line.

    `literals` are byte strings of seven bytes or more (shorter ones cost a pass over the file each). `feed` may keep state;
    what of several lines is being read is `_open`.
    """

    literals: tuple[bytes, ...]
    _open: Any = None

    @property
    def wants_more(self) -> bool:
        """Return whether the next line is wanted whatever it holds."""
        return bool(self._open)

    def feed(self, line: Line) -> Iterable[Event | Note]:
        """Return the events that this line completes, and notes on what is damaged."""
        raise NotImplementedError

    def close(self) -> Iterable[Event | Note]:
        """Return the events that only the end of the file completes."""
        return ()


class FormParser(LineParser):
    """Reads forms; of those with one key, such as all of one kind of event, the first that matches counts."""

    def __init__(self, module: ModuleType) -> None:
        self._forms, self.literals = _forms(module)

    def feed(self, line: Line) -> list[Event]:
        """Return what a line states in its forms."""
        found: dict[object, Sequence[Event]] = {}
        for key, kind, form in self._forms:
            if form.literal in line.raw and key not in found:
                match = form.pattern.search(line.text)
                if match is not None and (events := _events(kind, form, line, match)):
                    found[key] = events
        return [event for events in found.values() for event in events]


#: forms, each with its key and its kind of event
Keyed = tuple[tuple[object, type[Event], Form], ...]


def literals_of(forms: Iterable[Form]) -> tuple[bytes, ...]:
    """Return the literals of forms, each once."""
    return tuple(dict.fromkeys(form.literal.encode() for form in forms))


@cache
def _forms(module: ModuleType) -> tuple[Keyed, tuple[bytes, ...]]:
    kinds = [kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, Event)]
    declared = [kind for kind in kinds if kind.__module__ == module.__name__]
    forms = tuple((kind, kind, form) for kind in declared for form in kind.forms)
    return forms, literals_of(form for _, _, form in forms)


def _events(kind: type[Event], form: Form, line: Line, match: re.Match[str]) -> Sequence[Event]:
    """Return what a line states in a form."""
    more = form.read(line, match) if form.read is not None else {}
    if more is None or isinstance(more, (Event, Sequence)):
        return [more] if isinstance(more, Event) else more or ()
    caught: dict[str, Any] = dict(typed(kind, match))
    for pattern in kind.also:
        if (found := pattern.search(line.text)) is not None:
            caught |= typed(kind, found)
    return [kind.of(line, **{**caught, **form.known, **more})]


def typed(kind: Any, match: re.Match[str]) -> Iterator[tuple[str, Any]]:
    """Yield the fields that a match's groups are named after, with values of the declared types."""
    hints = hints_of(kind)
    for name, text in match.groupdict().items():
        if name in hints and text is not None:
            yield name, _CONVERT.get(hints[name], str)(text)


def integer(text: str | None) -> int | None:
    """Return the number that a group caught, or None; numbers beyond 18 digits count as absent."""
    return int(text) if text and len(text) < 19 else None


def spans(text: str, most: int) -> list[int]:
    """Return the numbers of a list such as `3,5-7`, so many at most."""
    found = re.findall(r"(\d{1,9})(?: ?- ?(\d{1,9}))?", text)
    return [*islice(chain.from_iterable(range(int(low), int(high or low) + 1) for low, high in found), most)]


_CONVERT: Mapping[Any, Callable[[str], Any]] = {
    int: integer,
    int | None: integer,
    tuple[int, ...]: lambda text: tuple(map(int, re.findall(r"\d{1,15}", text[:_ITEMS_SHOWN]))),
    tuple[str, ...]: lambda text: tuple(re.findall(r"[^,\s]+", text[:_ITEMS_SHOWN])),
}
