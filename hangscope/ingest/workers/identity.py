"""When two lines say the same: torch, `what()`, Python and the launcher each repeat one failure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.torch_logs.c10d_names import GroupEvent
from hangscope.model.events import Event

#: Where an event stands, and when and on which host it was told: all from one line.
_OF_THE_LINE = frozenset({"file", "line", "text", "host", "time", "stamp", "attempt"})


def identity(event: Event) -> tuple[Any, ...] | None:
    """Return a key that is equal for two events which tell the same thing, or None where each counts for itself.

    Valid within a log and across logs: file, line and text have no part in it. An exit is told by process id;
    everything else by who says it (rank, else local rank, task, host) and by what it says.
    """
    attempt = event.attempt or 0  # a log without restarts is the first attempt
    if isinstance(event, Exit):
        return ("exit", event.pid, event.code, attempt) if event.pid is not None else None
    if event.same_by is None:
        return None
    who: Any = event.rank
    if who is None:
        who = ("local", event.local_rank, event.task, event.host, event.group_rank)
    said = (getattr(event, name) for name in event.same_by)
    return (event.kind, who, attempt, *(tuple(sorted(v.items())) if isinstance(v, dict) else v for v in said))


def merge_repeats(events: Iterable[Event]) -> list[Event]:
    """Return the events without repeats, each at its first place, with what the repeats added to its fields."""
    kept: list[Event] = []
    index: dict[tuple[Any, ...], int] = {}
    for event in events:
        key = identity(event)
        at = index.get(key) if key is not None else None
        if at is None:
            if key is not None:
                index[key] = len(kept)
            kept.append(event)
        elif _compatible(kept[at], event):
            kept[at] = merge(kept[at], event)
        else:
            kept.append(event)
    return kept


def merge(first: Event, second: Event) -> Event:
    """Return the first event with what only the second one knows; of two ends of a process the launcher's table tells more."""
    told = first
    if isinstance(first, Exit) and isinstance(second, Exit) and second.via == "table":
        first, told = replace(first, via="table"), second
    known: dict[str, Any] = {}
    for field in fields(first):
        one, other = (first, second) if field.name not in _OF_THE_LINE else (told, second)
        value = getattr(one, field.name)
        known[field.name] = value if value not in (None, (), False) else getattr(other, field.name)
    return replace(first, **known)


def _compatible(a: Event, b: Event) -> bool:
    """Return whether no group that both name is another one."""
    return len({e.group_name for e in (a, b) if isinstance(e, GroupEvent)} - {None}) < 2
