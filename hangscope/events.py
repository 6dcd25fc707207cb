"""What text inputs say: the base of every kind of event, and how events cross a process boundary.

Each kind is a small frozen class beside the parser that makes it. What holds for a kind is said by its class: by what two
lines say the same (`same_by`), who prints it (`by_launcher`, `prints_group_rank`), whether a healthy job prints it too
(`calm`). A parser never decides a cause; it says what the line says.
"""

from __future__ import annotations

import datetime
import types
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, ClassVar, Union, get_args, get_origin, get_type_hints

from hangscope.frames import Frame, Stack

LEAP = 2024  # the year that stamps without one are counted in
MAX_NUMBER = 2**63
MAX_RANK = 10**7  # no larger one is read from a line
MAX_TEXT = 100_000
MAX_ITEMS = 2**18

_CLASSES: dict[str, type[Event]] = {}
_HINTS: dict[str, dict[str, Any]] = {}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that a text input says.

    `rank` is global and None where the line does not tell; `group_rank` is group-local, as most c10d lines print it;
    `local_rank` is torchrun's, of its host; `task` is srun's or mpirun's number. `text` is the quoted line (control
    characters stripped, cut at 500 characters), `file` relative to the analysed path, `line` counts from 1. `time` is
    seconds since the epoch where the line carries a usable wall-clock stamp (never compared across hosts without saying
    so), `stamp` seconds since 1 January as printed, in whatever time zone; whole seconds where c10 printed it, because
    its fraction comes from another clock. `rank_assumed`: the global rank rests on an assumption about its group.
    """

    kind: ClassVar[str] = ""
    same_by: ClassVar[tuple[str, ...] | None] = None
    by_launcher: ClassVar[bool] = False
    prints_group_rank: ClassVar[bool] = False
    calm: ClassVar[bool] = False

    file: str
    line: int
    text: str
    rank: int | None = None
    group_rank: int | None = None
    host: str | None = None
    pid: int | None = None
    time: float | None = None
    attempt: int | None = None
    local_rank: int | None = None
    task: int | None = None
    stamp: float | None = None
    rank_assumed: bool = False

    @property
    def in_the_year(self) -> float | None:
        """Return when it was printed, in seconds since 1 January of a leap year; None where no date is told."""
        return self.stamp if self.time is None else since_new_year(self.time)

    def __init_subclass__(cls) -> None:
        """Make the kind known to `from_row`."""
        if cls.__dict__.get("kind"):
            _CLASSES[cls.kind] = cls

    def told(self) -> dict[str, Any]:
        """Return the fields of the kind's own, without those that are not known."""
        return {
            name: value for name in own_fields(type(self)) if (value := getattr(self, name)) not in (None, ())
        }

    def to_row(self) -> tuple[Any, ...]:
        """Return the event as a tuple of plain builtins."""
        told = {name: _plain(value) for name, value in self.told().items()}
        return (self.kind, *(getattr(self, name) for name in _BASE), told)


def since_new_year(seconds: float) -> float:
    """Return seconds since 1 January of a leap year, as stamps without a year are counted."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    leap = moment.replace(year=LEAP) if (moment.month, moment.day) != (2, 29) else moment
    return (leap - datetime.datetime(leap.year, 1, 1, tzinfo=datetime.timezone.utc)).total_seconds()


_BASE: tuple[str, ...] = tuple(field.name for field in fields(Event))


def own_fields(kind: type[Event]) -> tuple[str, ...]:
    """Return the names of the fields that a kind has beside those of every event."""
    return tuple(field.name for field in fields(kind) if field.name not in _BASE)


def from_row(row: Iterable[Any]) -> Event:
    """Return the event that `to_row` wrote. Raises KeyError, TypeError or ValueError for anything else."""
    kind, *base, told = row
    made = _CLASSES[kind]
    own = {name: _typed(hint, told[name]) for name, hint in _hints(made).items() if name in told}
    return made(*base, **own)


def problem_of(event: Event) -> str:
    """Return what of an event that comes from a file is not of the form that a parser gives it; empty for a proper one."""
    for name, hint in (*_hints(Event).items(), *_hints(type(event)).items()):
        if not _check(hint)(getattr(event, name)):
            return f"the field {name} of an event {event.kind}"
    ranks = (event.rank, event.group_rank)
    return "an event's rank" if any(r is not None and not 0 <= r < MAX_RANK for r in ranks) else ""


def _hints(kind: type[Event]) -> dict[str, Any]:
    """Return the declared type of each field that a kind adds, or for `Event` itself of those that every event has."""
    found = _HINTS.get(kind.kind)
    if found is None:
        hints = get_type_hints(kind)
        found = _HINTS[kind.kind] = {
            name: hints[name] for name in (_BASE if kind is Event else own_fields(kind))
        }
    return found


@cache
def number_fields(kind: str) -> frozenset[str]:
    """Return the names of those fields of events of a kind that hold whole numbers."""
    hints = {**_hints(Event), **_hints(_CLASSES[kind])}
    return frozenset(name for name, hint in hints.items() if hint in (int, int | None))


def _plain(value: Any) -> Any:
    if isinstance(value, Frame):
        return (value.name, value.file, value.line)
    return tuple(map(_plain, value)) if isinstance(value, tuple) else value


def _typed(hint: Any, value: Any) -> Any:
    if hint == Stack:
        return tuple(Frame(*row) for row in value)
    return value


def is_number(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return type(value) is int and -MAX_NUMBER <= value < MAX_NUMBER


def is_rank(value: Any) -> bool:
    """Return whether a value is a rank or None."""
    return value is None or (type(value) is int and 0 <= value < MAX_RANK)


def is_text(value: Any) -> bool:
    """Return whether a value is text, and not without end."""
    return isinstance(value, str) and len(value) <= MAX_TEXT


def _is_amount(value: Any) -> bool:
    return is_number(value) or (isinstance(value, float) and abs(value) < MAX_NUMBER)


def _is_frame(value: Any) -> bool:
    return isinstance(value, Frame) and is_text(value.name) and is_text(value.file) and is_number(value.line)


_PLAIN: dict[Any, Callable[[Any], bool]] = {
    int: is_number,
    float: _is_amount,
    str: is_text,
    bool: lambda value: isinstance(value, bool),
    type(None): lambda value: value is None,
    Frame: _is_frame,
}


@cache
def _check(hint: Any) -> Callable[[Any], bool]:
    """Return a check of a value against the type that a field is declared with."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        checks = [_check(part) for part in inner]
        return lambda value: any(check(value) for check in checks)
    if origin is tuple and inner[-1] is Ellipsis:
        item = _check(inner[0])
        return lambda value: isinstance(value, tuple) and len(value) <= MAX_ITEMS and all(map(item, value))
    if origin is tuple:
        parts = [_check(part) for part in inner]
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(check(part) for check, part in zip(parts, value, strict=True))
        )
    if origin in (Mapping, dict):
        key, item = _check(inner[0]), _check(inner[1])
        return lambda value: (
            isinstance(value, dict)
            and len(value) <= MAX_ITEMS
            and all(key(k) and item(v) for k, v in value.items())
        )
    raise TypeError(f"no check for fields of type {hint}")
