"""Lines that need no interpretation: quoted after a claim, by knowledge/stages/lines.toml, and known messages, by their own entries."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from functools import cache
from itertools import groupby
from typing import Any

from hangscope.causes.case import Case
from hangscope.causes.ends.unnamed import whose
from hangscope.explain.text.group_size import world_size
from hangscope.explain.text.known_messages import blanks_of, filled, listed
from hangscope.ingest.job_logs.messages import Known, Message, Notice, table
from hangscope.ingest.lines.vocabulary import of_people
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.c10d import WatchdogStatus, is_default_group
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import group_label
from hangscope.model.rankset import compress, ranks_phrase
from hangscope.model.regex import regex
from hangscope.model.tables import entries
from hangscope.verdict.answer.observation import Observation, quoted
from hangscope.verdict.answer.text import groups, often, without

_OF_ALL = "default_pg"  # in whose keys numbers are global ranks
_SHOWN = 4  # different statements
_COMPARED = 256  # lines whose values are listed
_OTHERS = (regex(r"\b(?:any )?other\b"),)
_TIMES = {1: "once", 2: "twice"}


@dataclass(frozen=True, slots=True)
class LineKind:
    """One entry of the table, whose head describes the fields."""

    kind: str
    says: str = ""
    each: str = ""
    collect: str = ""
    what: str = "log"
    has: str = ""
    where: Mapping[str, object] = field(default_factory=dict)
    unless: str = ""
    names: str = ""
    proves: bool = True

    def fits(self, event: Event) -> bool:
        """Return whether the entry is for this line."""
        if self.has and getattr(event, self.has) in (None, ""):
            return False
        return all(getattr(event, name) == value for name, value in self.where.items())

    def named(self, events: Sequence[Event]) -> tuple[int, ...]:
        """Return the ranks that lines name."""
        found: set[int] = set()
        for event in events if self.names else ():
            if self.names.isidentifier():
                value = getattr(event, self.names)
                found.update((value,) if isinstance(value, int) else value or ())
            else:
                match = regex(self.names).search(event.text)
                found.update(int(number) for number in match.groups() if number) if match else None
        return tuple(sorted(found))


@cache
def line_kinds() -> tuple[LineKind, ...]:
    """Return the entries of the table."""
    return tuple(LineKind(**entry) for entry in entries("stages/lines.toml", "line"))


def lines(case: Case) -> Iterator[Observation]:
    """Yield what lines of the table's kinds show, in its order."""
    present = {kind.kind: events for kind, events in case.statements.kinds.items() if events}
    for kind, rows in groupby(line_kinds(), key=lambda row: row.kind):
        events = _worst(present.get(kind, ()))
        for row in rows:
            fitting = [e for e in events if row.fits(e)]
            if fitting and row.unless not in present:
                yield _observation(case, row, fitting)
                break


def _worst(events: Sequence[Event]) -> Sequence[Event]:
    """Return all lines, of NCCL's warnings those of the lowest tier: faults rather than what follows from them."""
    warnings = [e for e in events if isinstance(e, NcclWarn) and e.fault != "other"]
    tier = min((e.tier for e in warnings), default=None)
    return [e for e in warnings if e.tier == tier] or [e for e in events if not isinstance(e, NcclWarn)]


def _observation(case: Case, row: LineKind, events: Sequence[Event]) -> Observation:
    named, blanks = row.named(events), _blanks(case, events)
    if not row.names.isidentifier():  # a number within the group of whoever prints it
        resolve = case.statements.group_ranks.resolve
        named = tuple(sorted({rank for e in events for rank in resolve(e, row.named([e]))[0]}))
    printers = {e.rank for e in events}
    itself = {e.rank for e in events if e.rank in row.named([e]) and _OF_ALL not in e.text}
    suspects = tuple(r for r in named if r not in printers) or tuple(r for r in named if r not in itself)
    if named:  # nobody waits for itself: its own number there is that of another process in another group
        unknown = f"member {compress(named)} of another group"
        blanks["named"] = ranks_phrase(named) if suspects else unknown
    wanted, said = filled(row.collect, blanks), _worded(case, row, events) if row.each else quoted(events)
    retrying = any(isinstance(e, NcclWarn) and e.retrying for e in events)
    shows, proves = ": ".join(filter(None, (filled(row.says, blanks), said))), row.proves and not retrying
    return Observation(shows, wanted, row.what, suspects, proves, bool(suspects), tuple(events))


def _worded(case: Case, row: LineKind, events: Sequence[Event]) -> str:
    """Return what the lines say by the entry, those that say the same together."""
    alike: dict[str, list[Event]] = {}
    names = {getattr(event, "group_name", None) for event in events}
    for event in events:
        blanks = _blanks(case, [event])
        if len(names) > 1 and (purpose := getattr(event, "group_desc", None)):
            blanks["group"] = purpose  # ranks whose groups are for the same, of each pipeline, count alike
        alike.setdefault(filled(row.each, blanks), []).append(event)
    return "; ".join(f"{whose(case, same)} {text}" for text, same in [*alike.items()][:_SHOWN])


def _blanks(case: Case, events: Sequence[Event]) -> dict[str, str]:
    """Return what fills the placeholders of an entry."""
    first: Any = events[0]
    found = {}
    for name in (f.name for f in fields(first)):
        values = [v for e in events[:_COMPARED] if isinstance(v := getattr(e, name), str | int) and v != ""]
        if getattr(first, name) in values:
            found[name] = listed(map(str, values))
    found |= {"who": whose(case, events), "times": _TIMES.get(len(events), f"{len(events)} times")}
    if processes := listed(filter(None, (getattr(e, "process", "") for e in events)), 8):
        found["processes"] = processes
    if isinstance(first, WatchdogStatus):
        up_to = f"completed it up to seq {first.last_completed}"
        found["completed"] = up_to if first.last_completed >= 0 else "completed nothing"
        if first.group_name:
            default = is_default_group({"group_name": first.group_name, "group_desc": first.group_desc})
            found["group"] = group_label(first.group_name, "" if default else first.group_desc or "")
    if isinstance(first, NcclWarn):
        hosts = sorted({e.host for e in events if e.host})
        on = f"host{'s' if len(hosts) > 1 else ''} {', '.join(hosts)}"
        found["writer"] = on if hosts and first.rank is None else found["who"]
        peers = (e.peer_node or e.peer_host for e in events if isinstance(e, NcclWarn))
        found["peer"] = listed(filter(None, peers)) or "the peer's host"
    return found


def messages(case: Case) -> Iterator[tuple[Known, Observation]]:
    """Yield the known messages of a text: faults first, then what follows from one, then what healthy jobs print too."""
    by_entry: dict[str, list[Message]] = defaultdict(list)
    # A sentence that quotes a message is none.
    notices = (e for e in case.statements.all(Notice) if '"' not in e.text or not of_people(e.text))
    for event in (*case.statements.all(Message), *notices):
        by_entry[event.id].append(event)
    known = [table()[entry] for entry in by_entry if entry in table()]
    for entry in sorted(known, key=lambda k: (k.benign, k.follows, not k.cause, not k.stops)):
        yield entry, _of_entry(case, entry, by_entry[entry.id])


def _of_entry(case: Case, entry: Known, events: Sequence[Message]) -> Observation:
    """Return an entry in sentences."""
    blanks = blanks_of(events)
    ranks = tuple(sorted({e.rank for e in events if e.rank is not None}))
    wanted = filled(entry.collect, blanks)
    if ranks and ranks == tuple(range(world_size(case.statements) or 0)):
        wanted = without(wanted, _OTHERS)  # nobody else is left to be asked
    suspects = ranks if entry.culprit and len(ranks) == 1 else ()
    numbers = {e.line for e in events}
    alike = (group for group in groups(case) if not numbers.isdisjoint(group.numbers))
    shows = filled(entry.says, blanks) + "".join(often(group) for group in [*alike][:1])
    if entry.means:
        shows += f". {filled(entry.means, blanks)}".rstrip(".")
    if entry.upstream:
        shows += f". Known upstream{f' for {entry.versions}' if entry.versions else ''}: {entry.upstream}"
    asked, proves, blamed = entry.collect_what, entry.stops, bool(entry.cause)
    return Observation(shows, wanted, asked, suspects, proves, blamed, tuple(events), entry.cause)
