"""Typed objects as plain data and back: what JSON can hold, read with every type checked.

Used where a report leaves the process or comes from a file. `from_plain` takes nothing on trust: a value of another type
than its field says is an error that names the place, keys that are not known are left out, and what is absent takes the
field's default.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class ShapeError(ValueError):
    """Plain data has another shape than the type asks for."""


def to_plain(value: Any) -> Any:
    """Return dataclasses as dicts in the order of their fields, tuples as lists."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: to_plain(found)
            for name, omit in _names(type(value))
            if (found := getattr(value, name)) is not None or not omit
        }
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], value: Any, where: str = "report") -> T:
    """Return plain data as an object of `kind`. Raises ShapeError where it does not fit."""
    return _read(kind, value, where)  # type: ignore[no-any-return]


def _read(kind: Any, value: Any, where: str) -> Any:
    if kind is Any:
        return value
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        return _read_union(get_args(kind), value, where)
    if origin is tuple:
        item = get_args(kind)[0]
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, "a list", where)
        return tuple(_read(item, v, f"{where}[{i}]") for i, v in enumerate(value))
    if origin is dict:
        if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
            raise _wrong(value, "an object", where)
        return {key: _read(get_args(kind)[1], v, f"{where}.{key}") for key, v in value.items()}
    if dataclasses.is_dataclass(kind):
        return _read_object(kind, value, where)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong(value, "null" if kind is type(None) else kind.__name__, where)
    return value


def _read_union(kinds: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in kinds:
        return None
    problem: ShapeError | None = None
    for kind in kinds:
        try:
            return _read(kind, value, where)
        except ShapeError as error:
            problem = problem or error
    raise problem or _wrong(value, "a value", where)


def _read_object(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(value, "an object", where)
    found = {}
    for name, hint, needed in _hints(kind):
        if name in value:
            found[name] = _read(hint, value[name], f"{where}.{name}")
        elif needed:
            raise ShapeError(f"{where} has no {name!r}")
    return kind(**found)


def _wrong(value: Any, wanted: str, where: str) -> ShapeError:
    return ShapeError(f"{where} is {type(value).__name__}, not {wanted}")


@lru_cache(maxsize=256)
def _names(kind: type) -> tuple[tuple[str, bool], ...]:
    return tuple((f.name, "omit_none" in f.metadata) for f in dataclasses.fields(kind))


@lru_cache(maxsize=256)
def _hints(kind: type) -> tuple[tuple[str, Any, bool], ...]:
    hints = get_type_hints(kind)
    return tuple(
        (
            f.name,
            hints[f.name],
            f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING,
        )
        for f in dataclasses.fields(kind)
    )
