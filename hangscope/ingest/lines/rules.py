"""Parsers of single lines as ordered tables of rules: a literal, a regular expression, and what a match says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from hangscope.dataclass import dataclass
from hangscope.events import Event, number_fields
from hangscope.ingest.lines.parser import LineParser
from hangscope.ingest.lines.prefixes import Line
from hangscope.regex import regex

Build = Callable[[Line, "re.Match[str]"], "Event | Sequence[Event] | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line. `literal` stands in every such line; `pattern` is searched only where it does."""

    literal: str
    pattern: re.Pattern[str]
    build: Build


class RuleParser(LineParser):
    """Applies rules to single lines; of the rules of one family (one kind of event) the first that matches counts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self.literals = tuple(dict.fromkeys(rule.literal.encode() for rule in rules))

    def feed(self, line: Line) -> Iterable[Event]:
        """Return at most one event per kind."""
        found: dict[str, list[Event]] = {}
        for rule in self._rules:
            if rule.literal not in line.text:
                continue
            match = rule.pattern.search(line.text)
            built = rule.build(line, match) if match else None
            if built:
                events = [built] if isinstance(built, Event) else list(built)
                found.setdefault(events[0].kind, events)
        return [event for events in found.values() for event in events]


def rule(literal: str, pattern: str | None, build: Build) -> Rule:
    """Return a rule from the text of its regular expression; None: the literal itself, wherever it stands, says it all."""
    return Rule(literal, regex(re.escape(literal) if pattern is None else pattern), build)


def told(kind: type[Event], make: Callable[..., Event] = Line.event, **known: str | bool) -> Build:
    """Return what makes an event of a kind out of a match: `known`, and the pattern's named groups, are its fields."""

    def build(line: Line, match: re.Match[str]) -> Event:
        caught = match.groupdict()
        numbers = number_fields(kind.kind)
        fields = {name: integer(text) if name in numbers else text for name, text in caught.items()}
        return make(line, kind, **fields, **known)

    return build


def integer(text: str | None) -> int | None:
    """Return the number that a group caught, or None; numbers beyond 18 digits count as absent."""
    return int(text) if text and len(text) < 19 else None
