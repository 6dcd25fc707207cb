"""The facts that masking goes by, which are TOML files of this folder: words, issuers, programs, and the rules that use them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from hangscope.model.regex import regex

_DIGIT = r"(?=[A-Za-z-]{0,40}\d)"
_REFERENCE = re.compile(r"<<(\w+)>>")


@cache
def table(name: str) -> dict[str, Any]:
    """Return the content of one file."""
    from hangscope.model.tables import tomllib

    data: dict[str, Any] = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
    return data


@cache
def words(name: str) -> frozenset[str]:
    """Return a list of words."""
    return frozenset(table("words")[name])


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """Return a pattern of a file, with each `<<name>>` in it replaced by the words of that list."""
    return regex(_expanded(pattern))


@cache
def tokens() -> re.Pattern[str]:
    """Return the pattern of all tokens with a known prefix: an attempt looks at every character once."""
    return re.compile(
        "|".join(
            f"{re.escape(prefix)}{body.replace('#', _DIGIT)}{{{least},}}"
            for prefixes, body, least in table("issuers")["prefixes"]
            for prefix in prefixes.split()
        )
    )


def starred(text: str, spans: Iterable[tuple[int, int]]) -> str:
    """Return a text with `***` in place of parts of it, which are in their order."""
    parts, done = [""], 0
    for start, end in spans:
        parts += [text[done:start], "***"]
        done = end
    return "".join([*parts, text[done:]])


def _expanded(pattern: str) -> str:
    return _REFERENCE.sub(lambda reference: _expanded("|".join(_alternatives(reference[1]))), pattern)


def _alternatives(name: str) -> list[str]:
    if name == "prefixes":
        return [re.escape(prefix) for prefixes, _, _ in table("issuers")[name] for prefix in prefixes.split()]
    if name == "tokens":
        return [tokens().pattern]
    found = next(data[name] for data in map(table, ("words", "issuers", "programs")) if name in data)
    return list(found)
