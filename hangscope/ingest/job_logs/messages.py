"""Messages of engines, vendors and libraries whose meaning is known: the table is data, in knowledge/messages/*.toml.

    DeepEP dispatch NVL receiver timeout, channel: 9, RDMA: 1, nvl: 3, src RDMA: 0, src nvl: 3, start: 0, end: 0

An entry has the literal and the pattern of a line, what the line says and what to collect next; a line that is no cause also has what it
means. Its named groups are
the blanks of the sentence in `says`; `rank`, `victim_pid` and `host` also name whose line it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from hangscope.ingest.job_logs.engines import process_of
from hangscope.ingest.lines.forms import LineParser, integer
from hangscope.ingest.lines.prefixes import Line
from hangscope.ingest.nccl.hccl import StatedRank
from hangscope.ingest.recorder.members import MAX_RANKS
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_LONGEST = 120
_OF_THE_LINE = frozenset({"literal", "pattern", "example"})  # what finds it, and one line that it finds


@dataclass(frozen=True, slots=True)
class Known:
    """One entry of the table.

    `stops`: the line proves that the job stopped. `follows`: it reports what another fault brought about. `benign`: a healthy job prints it too.
    `means` is what these two mean.
    `cause` is the verdict that the line establishes by itself, empty where it establishes none; `culprit`: its rank is to blame.
    `collect_what` is dump, log, stack or other.
    """

    id: str
    system: str
    says: str
    means: str = ""
    collect: str = ""
    collect_what: str = "log"
    cause: str = ""
    category: str = ""
    culprit: bool = False
    stops: bool = True
    follows: bool = False
    benign: bool = False
    versions: str = ""
    upstream: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Message(Event, same_by=("id", "values", "process")):
    """A line of the table: `id` is its entry, `values` are (blank, text) in the order of the pattern, `process` its writer's name in an engine."""

    id: str
    values: tuple[tuple[str, str], ...] = ()
    process: str | None = None
    victim_pid: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Message, same_by=("id", "values", "process"), calm=True):
    """A line of the table that a healthy job prints as well."""


@cache
def table() -> Mapping[str, Known]:
    """Return the entries by id."""
    return {entry["id"]: _known(entry) for entry in _entries()}


class MessageParser(LineParser):
    """Reads the lines of the table; of each entry the first literal that a line holds counts."""

    def __init__(self) -> None:
        self._forms = _forms()
        self._told = StatedRank()
        self.literals = (*(literal.encode() for literal, _, _ in self._forms), StatedRank.literal)

    def feed(self, line: Line) -> Iterable[Event]:
        """Return at most one event per entry."""
        found: dict[str, Event] = {}
        rank = self._told.of(line)
        for literal, pattern, known in self._forms:
            if literal in line.text and known.id not in found and (match := pattern.search(line.text)):
                found[known.id] = _message(known, line, match)
        return [replace(e, rank=rank) if e.rank is None else e for e in found.values()]


@cache
def _forms() -> tuple[tuple[str, re.Pattern[str], Known], ...]:
    """Return (literal, pattern, entry) of each wording; without a pattern the literal says it all."""
    found = []
    for entry in _entries():
        for literal in [entry["literal"]] if isinstance(entry["literal"], str) else entry["literal"]:
            found.append((literal, regex(entry.get("pattern", re.escape(literal))), _known(entry)))
    return tuple(found)


@cache
def _entries() -> tuple[dict[str, Any], ...]:
    return tuple(entries("messages", "message"))


def _known(entry: Mapping[str, Any]) -> Known:
    return Known(**{name: value for name, value in entry.items() if name not in _OF_THE_LINE})


def _message(known: Known, line: Line, match: re.Match[str]) -> Event:
    caught = {name: text.strip()[:_LONGEST] for name, text in match.groupdict().items() if text}
    victim, rank = integer(caught.get("victim_pid")), integer(caught.get("rank"))
    event = line.event(
        Notice if known.benign else Message, id=known.id, values=tuple(caught.items()), process=process_of(line.raw),
        victim_pid=victim, host=caught.get("host"),
    )  # fmt: skip
    return replace(event, rank=rank) if rank is not None and rank < MAX_RANKS else event
