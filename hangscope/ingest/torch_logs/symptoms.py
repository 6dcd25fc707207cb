"""Exceptions that tell what the communication layer noticed, and not what the rank did that raised them."""

from __future__ import annotations

import re
from functools import cache

from hangscope.ingest.lines.vocabulary import words
from hangscope.model.tables import entries


@cache
def symptoms() -> tuple[re.Pattern[str], re.Pattern[str], frozenset[str]]:
    """Return what symptoms say, what those of them say that are checks, and their types (knowledge/faults/symptoms.toml)."""
    rows = entries("faults/symptoms.toml", "symptom")
    said, checks = (
        re.compile("|".join(pattern for row in part for pattern in row["patterns"]))
        for part in (rows, [row for row in rows if row.get("check")])
    )
    return said, checks, frozenset(name for row in rows for name in row.get("types", ()))


def is_symptom(kind: str, message: str) -> bool:
    """Return whether an exception reports what the communication layer noticed, not what this rank did."""
    text = f"{kind}: {message}"
    said, _, types = symptoms()
    own = words("own_in_nccl").search(text)
    return bool(said.search(text)) or (re.split(r"\.|::", kind)[-1] in types and not own)


def is_check(kind: str, message: str) -> bool:
    """Return whether a check raised an exception that compares what the ranks call or build."""
    return symptoms()[1].search(f"{kind}: {message}") is not None
