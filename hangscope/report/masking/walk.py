"""Change every text in plain data."""

from __future__ import annotations

from collections.abc import Callable
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
