"""Go through every text of plain data, or of frozen dataclasses: one walk, so that no field is missed."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, TypeVar, cast

T = TypeVar("T")


def change_texts(value: T, change: Callable[[str], str], kept: Container[str] = ()) -> T:
    """Return a value with every string changed, except keys of dictionaries and the values under those in `kept`."""
    return cast(T, _changed(value, change, kept))


def _changed(value: Any, change: Callable[[str], str], kept: Container[str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: item if key in kept else _changed(item, change, kept) for key, item in value.items()}
    if isinstance(value, list):
        return [_changed(item, change, kept) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_changed(item, change, kept) for item in value)
    if not is_dataclass(value):
        return value
    kind: Any = type(value)
    old = {name: getattr(value, name) for name in _names(kind) if name not in kept}
    new = {name: _changed(item, change, kept) for name, item in old.items()}
    return replace(cast(Any, value), **new)


def texts_in(value: Any) -> list[str]:
    """Return every string in a value but the keys of dictionaries."""
    found: list[str] = []

    def keep(text: str) -> str:
        found.append(text)
        return text

    change_texts(value, keep)
    return found


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(part.name for part in fields(kind) if part.init)
