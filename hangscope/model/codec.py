"""Typed objects as plain data and back, with every type checked: the one codec for all that leaves a process.

Reports are written by the names of the fields (`to_plain`), as JSON can hold them; what children and packs answer is written by
their order (`to_row`). Both are read by the annotations of the classes: a value of another type than its field declares is an
error that names the place, unknown names are left out, and what is absent takes the field's default.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Reader = Callable[[Any], Any]

MAX_NUMBER = 2**63
MAX_RANK = 10**7  # no larger one is read from a line
MAX_TEXT = 100_000
MAX_ITEMS = 2**18


class ShapeError(ValueError):
    """Plain data has another shape than the type asks for."""


def to_plain(value: Any) -> Any:
    """Return dataclasses as dicts in the order of their fields, tuples as lists."""
    kind: Any = type(value)
    if hasattr(kind, "__dataclass_fields__"):
        return {
            name: to_plain(found)
            for name, omit in _fields_of(kind)
            if (found := getattr(value, name)) is not None or not omit
        }
    if isinstance(value, (tuple, list)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return value


def to_row(value: Any) -> Any:
    """Return dataclasses as tuples of their fields, with the name of its kind first where a class has several (`class_of`)."""
    kind: Any = type(value)
    if hasattr(kind, "to_wire"):
        return value.to_wire()
    if hasattr(kind, "__dataclass_fields__"):
        fields = [to_row(getattr(value, name)) for name, _ in _fields_of(kind)]
        return (value.kind, *fields) if hasattr(kind, "class_of") else tuple(fields)
    if kind is tuple:
        return tuple(map(to_row, value))
    return list(map(to_row, value)) if kind is list else value


def to_fields(value: Any) -> dict[str, Any]:
    """Return one dataclass by the names of its fields, and what is in them as rows."""
    kind: Any = type(value)
    return {name: to_row(getattr(value, name)) for name, _ in _fields_of(kind)}


def from_plain(kind: type[T], value: Any, *, limited: bool = False) -> T:
    """Return plain data as an object of `kind`. Raises ShapeError where it does not fit.

    `limited`: no number, text or list in it may be larger than any that a parser gives.
    """
    wanted: Any = kind
    try:
        result: T = _reader(wanted, limited)(value)
    except ShapeError as error:
        place, text = error.args if len(error.args) > 1 else ("", error.args[0])
        raise ShapeError(f"{'an answer' if limited else 'report'}{place} {text}") from None
    return result


def from_row(kind: type[T], value: Any) -> T:
    """Return what `to_row` wrote."""
    return from_plain(kind, value, limited=True)


def is_number(value: Any) -> bool:
    """Return whether a value is a whole number of 64 bits."""
    return type(value) is int and -MAX_NUMBER <= value < MAX_NUMBER


def is_rank(value: Any) -> bool:
    """Return whether a value is a rank or None."""
    return value is None or (type(value) is int and 0 <= value < MAX_RANK)


def _wrong(value: Any, wanted: str) -> ShapeError:
    return ShapeError("", f"is {type(value).__name__}, not {wanted}")


def _within(place: str, read: Reader, value: Any) -> Any:
    """Return the value of a part; an error says where the part is."""
    try:
        return read(value)
    except ShapeError as error:
        raise ShapeError(place + error.args[0], error.args[1]) from None


@cache
def _reader(kind: Any, limited: bool) -> Reader:
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (Union, types.UnionType):
        return _any_reader(inner, limited)
    if origin in (tuple, list):
        return _list_reader(origin, inner, limited)
    if origin in (Mapping, dict):
        return _dict_reader(inner, limited)
    if hasattr(kind, "from_wire"):
        return _own_reader(kind)
    if dataclasses.is_dataclass(kind):
        return _object_reader(kind, limited)
    return _plain_reader(kind, limited)


def _own_reader(kind: Any) -> Reader:
    def read(value: Any) -> Any:  # a class with its own serialized form checks it itself
        try:
            return kind.from_wire(value)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ShapeError("", f"cannot be read: {type(error).__name__}: {error}") from None

    return read


def _plain_reader(kind: Any, limited: bool) -> Reader:
    name = "null" if kind is types.NoneType else kind.__name__

    def read(value: Any) -> Any:
        if kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise _wrong(value, name)
        if limited and (
            (kind is int and not is_number(value))
            or (kind is float and not abs(value) < MAX_NUMBER)
            or (kind in (str, bytes) and len(value) > MAX_TEXT)
        ):
            raise ShapeError("", "is larger than anything that a parser reads")
        return value

    return read


def _any_reader(kinds: tuple[Any, ...], limited: bool) -> Reader:
    readers = [_reader(kind, limited) for kind in kinds if kind is not types.NoneType]
    optional = types.NoneType in kinds

    def read(value: Any) -> Any:
        if value is None and optional:
            return None
        problem: ShapeError | None = None
        for reader in readers:
            try:
                return reader(value)
            except ShapeError as error:
                problem = problem or error
        raise problem or _wrong(value, "a value")

    return read


def _list_reader(make: Any, inner: tuple[Any, ...], limited: bool) -> Reader:
    each = _reader(inner[0], limited)
    fixed = None if make is list or inner[-1] is Ellipsis else [_reader(part, limited) for part in inner]

    def read(value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _wrong(value, "a list")
        if (limited and len(value) > MAX_ITEMS) or (fixed is not None and len(fixed) != len(value)):
            raise ShapeError("", f"has {len(value)} items")
        readers = fixed or [each] * len(value)
        return make(_within(f"[{i}]", r, v) for i, (r, v) in enumerate(zip(readers, value, strict=True)))

    return read


def _dict_reader(inner: tuple[Any, ...], limited: bool) -> Reader:
    key_reader, item_reader = (_reader(part, limited) for part in inner)

    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        if limited and len(value) > MAX_ITEMS:
            raise ShapeError("", f"has {len(value)} items")
        return {key_reader(k): _within(f".{k}", item_reader, v) for k, v in value.items()}

    return read


def _object_reader(kind: Any, limited: bool) -> Reader:
    if (class_of := getattr(kind, "class_of", None)) is not None and not getattr(kind, "kind", ""):

        def read_kind(value: Any) -> Any:
            if not isinstance(value, tuple) or not value or (found := class_of(value[0])) is None:
                raise _wrong(value, f"one of the kinds of {kind.__name__}")
            return _within(f" {found.kind}", _reader(found, limited), value[1:])

        return read_kind
    hints = get_type_hints(kind)
    readers = {f.name: _reader(hints[f.name], limited) for f in dataclasses.fields(kind)}
    unset = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(kind) if f.default is unset and f.default_factory is unset]

    def read(value: Any) -> Any:
        if isinstance(value, tuple):
            if len(value) != len(readers):
                raise ShapeError("", f"has {len(value)} fields, not {len(readers)}")
            value = dict(zip(readers, value, strict=True))
        if not isinstance(value, dict):
            raise _wrong(value, "an object")
        if missing := next((name for name in needed if name not in value), None):
            raise ShapeError("", f"has no {missing!r}")
        return kind(
            **{name: _within(f".{name}", readers[name], value[name]) for name in readers if name in value}
        )

    return read


@cache
def _fields_of(kind: Any) -> tuple[tuple[str, bool], ...]:
    return tuple((f.name, "omit_none" in f.metadata) for f in dataclasses.fields(kind))
