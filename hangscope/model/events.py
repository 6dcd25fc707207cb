"""What logs state: the base of every kind of event.

Each kind is a small frozen class in its parser's module. The class says which fields make two lines equal (`same_by`), who
prints it (`by_launcher`, `prints_group_rank`), and whether a healthy job prints it too (`calm`). A parser records what its
line states and decides no cause.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, get_type_hints

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex

if TYPE_CHECKING:
    from typing_extensions import Self, dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Return a class as it is; type checkers know what it does."""
        return lambda cls: cls


LEAP = 2024  # the year that stamps without one are counted in

_CLASSES: dict[str, type[Event]] = {}
_CAPITAL = regex(r"(?<=[a-z0-9])([A-Z])")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class _Kind(type):
    """Makes `Event` and what is derived from it frozen dataclasses with slots, whose fields are given by name."""

    def __new__(cls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any) -> Any:
        made = super().__new__(cls, name, bases, namespace, **options)
        if "__dataclass_fields__" in namespace:  # `dataclass` makes a class again, with its slots
            return made
        return dataclass(frozen=True, slots=True, kw_only=True)(made)


class Event(metaclass=_Kind):
    """One statement of a log.

    `rank` is global and None if the line does not contain it; `group_rank` is group-local, as most c10d lines print it; `local_rank` is torchrun's, of its host; `task` is srun's or mpirun's number. `text` is the quoted line (control
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
    size_field: ClassVar[str] = ""
    rank_fields: ClassVar[tuple[str, ...]] = ()
    #: the single lines that say it, and patterns that catch more of its fields where they match (ingest/lines/forms.py)
    forms: ClassVar[tuple[Any, ...]] = ()
    also: ClassVar[tuple[Any, ...]] = ()

    __dataclass_fields__: ClassVar[dict[str, Any]]

    file: str = field(kw_only=False)
    line: int = field(kw_only=False)
    text: str = field(kw_only=False)
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
        """Return when it was printed, in seconds since 1 January of a leap year; None if the line has no date."""
        return self.stamp if self.time is None else since_new_year(self.time)

    def __init_subclass__(
        cls,
        *,
        kind: str | None = None,
        same_by: tuple[str, ...] | None = None,
        by_launcher: bool = False,
        prints_group_rank: bool = False,
        calm: bool = False,
        size_field: str = "",
        rank_fields: tuple[str, ...] = (),
    ) -> None:
        """Take note of what holds for a kind. It is called as its class: `StoreTimeout` is store_timeout; "": a base of kinds.

        `size_field` has the number of ranks of a group, the numbers in `rank_fields` are ranks.
        """
        if (
            "kind" not in cls.__dict__
        ):  # `dataclass` makes every class twice, the second time with what the first one has
            cls.kind = _CAPITAL.sub(r"_\1", cls.__name__).lower() if kind is None else kind
            cls.same_by, cls.by_launcher = same_by, by_launcher
            cls.prints_group_rank, cls.calm = prints_group_rank, calm
            cls.size_field, cls.rank_fields = size_field, rank_fields
        if cls.kind:
            _CLASSES[cls.kind] = cls

    def least_sizes(self) -> Iterator[int]:
        """Yield numbers of ranks that the job has at least by what this says."""
        if self.size_field:
            yield getattr(self, self.size_field) or 0
            return
        for name in ("group_rank", *self.rank_fields):
            yield from (number + 1 for number in _numbers(getattr(self, name)))

    @classmethod
    def of(cls, line: Any, **fields: Any) -> Self:
        """Return an event of this kind that quotes a `Line`."""
        event: Self = line.event(cls, **fields)
        return event

    @staticmethod
    def class_of(kind: Any) -> type[Event] | None:
        """Return the class of a kind by its name."""
        return _CLASSES.get(kind) if isinstance(kind, str) else None


def _numbers(value: Any) -> Iterator[int]:
    """Yield the numbers in a field: itself, those of a tuple, the keys of a mapping or the tuples in it."""
    if isinstance(value, int):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _numbers(item if isinstance(item, tuple) else key)
    else:
        yield from value or ()


def in_leap_year(month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float | None:
    """Return seconds since 1 January of a leap year, as stamps without a year are counted; None for no date."""
    try:
        moment = datetime.datetime(LEAP, month, day, hour, minute, min(second, 59))
    except ValueError:
        return None
    return (moment - datetime.datetime(LEAP, 1, 1)).total_seconds() + max(0, second - 59)


def since_new_year(seconds: float) -> float:
    """Return seconds since 1 January of a leap year for seconds since the epoch."""
    moment = datetime.datetime.fromtimestamp(seconds, datetime.timezone.utc)
    day = in_leap_year(moment.month, moment.day, moment.hour, moment.minute, moment.second)
    return (day or 0.0) + moment.microsecond / 1e6


@cache
def hints_of(kind: Any) -> dict[str, Any]:
    """Return the declared type of each field of a kind."""
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}
