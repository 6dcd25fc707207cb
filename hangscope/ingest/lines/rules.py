"""Parsers of single lines as ordered tables of rules: a literal, a regular expression, and what a match says."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from hangscope.events import Event
from hangscope.ingest.lines.prefixes import Line

Build = Callable[[Line, "re.Match[str]"], "Event | Sequence[Event] | None"]


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of line. `literal` stands in every such line; `pattern` is searched only where it does."""

    literal: str
    pattern: re.Pattern[str]
    build: Build


class RuleParser:
    """Applies rules to single lines; of the rules of one family (one kind of event) the first that matches counts."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self._rules = tuple(rules)
        self._literals = tuple(dict.fromkeys(rule.literal.encode() for rule in rules))

    @property
    def literals(self) -> tuple[bytes, ...]:
        """Return the literals of all rules."""
        return self._literals

    @property
    def wants_more(self) -> bool:
        """Return False: a rule needs one line."""
        return False

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

    def close(self) -> Iterable[Event]:
        """Return nothing: no line is held back."""
        return ()


def rule(literal: str, pattern: str, build: Build) -> Rule:
    """Return a rule from the text of its regular expression."""
    return Rule(literal, re.compile(pattern), build)


def integer(text: str | None) -> int | None:
    """Return the number that a group caught, or None; numbers beyond 18 digits count as absent."""
    return int(text) if text and len(text) < 19 else None
