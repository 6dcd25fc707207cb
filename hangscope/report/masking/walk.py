"""Go through every text of plain data, or of frozen dataclasses."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any


def change_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return plain data in which every string but the keys of dictionaries went through `change`."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: change_texts(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [change_texts(item, change) for item in value]
    return value


def texts_in(value: Any) -> Iterator[str]:
    """Yield every string in plain data but the keys of dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from texts_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from texts_in(item)


def leaves(value: Any) -> set[Any]:
    """Return every different key and value of plain data that is neither a dictionary nor a list."""
    found: set[Any] = set()
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, dict):
            found.update(item)
            left.extend(item.values())
        elif isinstance(item, list):
            left.extend(item)
        else:
            found.add(item)
    return found


def change_fields(value: Any, change: Callable[[str], str], kept: Container[str]) -> Any:
    """Return a value of dataclasses, tuples and lists in which every string went through `change`, but those of the fields `kept`."""
    if isinstance(value, str):
        return change(value)
    if is_dataclass(value) and not isinstance(value, type):
        changed = {
            part.name: change_fields(getattr(value, part.name), change, kept)
            for part in fields(value)
            if part.init and part.name not in kept
        }
        return replace(value, **changed)
    if isinstance(value, list):
        return [change_fields(item, change, kept) for item in value]
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(change_fields(item, change, kept) for item in value)
    return value
