"""Words and phrases by which lines without a form of their own are recognised: knowledge/lines/words.toml."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from hangscope.model.tables import entries


@cache
def words(name: str) -> re.Pattern[str]:
    """Return the pattern that finds any of the words of an entry."""
    return re.compile(expressions()[name])


@cache
def expressions() -> Mapping[str, str]:
    """Return the regular expression of each entry."""
    found = {}
    for entry in entries("lines/words.toml", "words"):
        before, after = entry.get("around", ("", ""))
        found[entry["name"]] = f"{before}{'|'.join(entry['any'])}{after}"
    return found
