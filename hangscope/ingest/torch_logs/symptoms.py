"""Exceptions that tell what the communication layer noticed, and not what the rank did that raised them."""

from __future__ import annotations

import re
from functools import cache

from hangscope.ingest.lines.vocabulary import words
from hangscope.model.tables import entries


@cache
def symptoms() -> tuple[re.Pattern[str], frozenset[str]]:
    """Return what symptoms say, and the names of their types (knowledge/faults/symptoms.toml)."""
    table = entries("faults/symptoms.toml", "symptom")
    patterns = [pattern for row in table for pattern in row["patterns"]]
    return re.compile("|".join(patterns)), frozenset(name for row in table for name in row.get("types", ()))


@cache
def _checks() -> re.Pattern[str]:
    """Return what the checks say by which ranks compare what they call and build."""
    rows = (row for row in entries("faults/symptoms.toml", "symptom") if row.get("check"))
    return re.compile("|".join(pattern for row in rows for pattern in row["patterns"]))


def is_symptom(kind: str, message: str) -> bool:
    """Return whether an exception reports what the communication layer noticed, not what this rank did."""
    text = f"{kind}: {message}"
    said, types = symptoms()
    if said.search(text):
        return True
    return re.split(r"\.|::", kind)[-1] in types and not words("own_in_nccl").search(text)


def is_check(kind: str, message: str) -> bool:
    """Return whether a check raised an exception that compares what the ranks call or build."""
    return _checks().search(f"{kind}: {message}") is not None
