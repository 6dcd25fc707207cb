"""The causes in words: what each means, what a verdict of it establishes and what it does not, and how to fix it.

`hangscope explain CAUSE` prints these entries, and the table of docs/causes.md is made of them.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from hangscope.model.dataclass import dataclass
from hangscope.model.tables import entries


@dataclass(frozen=True, slots=True)
class CauseText:
    """One cause for people; `knowledge/causes/catalog.toml` describes the fields."""

    cause: str
    category: str
    title: str
    means: str
    culprit: str
    establishes: str
    does_not: str
    fix: Sequence[str]
    would_decide: str
    act: str = ""
    of_collectives: bool = False
    of_programs: bool = False
    by_text: bool = False
    stack_tells: bool = False
    lookalikes: Sequence[tuple[str, str]] = ()

    def explained(self) -> str:
        """Return all of it as paragraphs for a terminal."""
        parts = {
            "What happened": self.means,
            "The culprit is": self.culprit,
            "A verdict establishes": self.establishes,
            "It does not establish": self.does_not,
            "What to do": " ".join(self.fix).format(who="the culprit"),
        }
        lines = [textwrap.fill(f"{name}: {text}", 96, subsequent_indent="  ") for name, text in parts.items()]
        return "\n".join((f"{self.cause}: {self.title}", "", *lines))


CATALOG = {entry["cause"]: CauseText(**entry) for entry in entries("causes/catalog.toml", "cause")}
