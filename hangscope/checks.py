"""Whether what comes from a file has the types that its classes declare: checks are made from the declarations.

A number is a whole one of 64 bits, text is not without end, and neither is a tuple or a mapping.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from hangscope.frames import Frame

MAX_NUMBER = 2**63
MAX_RANK = 10**7  # no larger one is read from a line
MAX_TEXT = 100_000
MAX_ITEMS = 2**18


def wrong_field(value: Any) -> str | None:
    """Return the name of the first field of a dataclass whose value is not of its declared type; None for a proper one."""
    kind: Any = type(value)
    for name, check in _checks(kind):
        if not check(getattr(value, name)):
            return name
    return None


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
    Frame: _is_frame,
}


@cache
def check_of(hint: Any) -> Callable[[Any], bool]:
    """Return a check of a value against the type that a field is declared with."""
    if hint in _PLAIN:
        return _PLAIN[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        first, *others = (check_of(part) for part in inner if part is not type(None))
        optional = type(None) in inner
        return lambda value: (
            (value is None and optional) or first(value) or any(check(value) for check in others)
        )
    if origin is tuple and inner[-1] is Ellipsis:
        item = check_of(inner[0])
        return lambda value: isinstance(value, tuple) and len(value) <= MAX_ITEMS and all(map(item, value))
    if origin is tuple:
        parts = [check_of(part) for part in inner]
        return lambda value: (
            isinstance(value, tuple)
            and len(value) == len(parts)
            and all(check(part) for check, part in zip(parts, value, strict=True))
        )
    if origin in (Mapping, dict):
        key, item = check_of(inner[0]), check_of(inner[1])
        return lambda value: (
            isinstance(value, dict)
            and len(value) <= MAX_ITEMS
            and all(key(k) and item(v) for k, v in value.items())
        )
    if origin is list:
        item = check_of(inner[0])
        return lambda value: isinstance(value, list) and all(map(item, value))
    if isinstance(hint, type):
        deep = is_dataclass(hint)
        return lambda value: isinstance(value, hint) and (not deep or wrong_field(value) is None)
    raise TypeError(f"no check for fields of type {hint}")


@cache
def _checks(kind: Any) -> tuple[tuple[str, Callable[[Any], bool]], ...]:
    """Return the fields of a dataclass that are no private ones, each with the check of its type."""
    hints = get_type_hints(kind)
    names = (field.name for field in fields(kind) if not field.name.startswith("_"))
    return tuple((name, check_of(hints[name])) for name in names)
