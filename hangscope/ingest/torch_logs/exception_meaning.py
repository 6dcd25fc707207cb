"""What an exception means: whose code a frame is, and whether it is this rank's own fault or what it noticed of a peer."""

from __future__ import annotations

import re
from functools import cache

from hangscope.model.regex import regex
from hangscope.model.tables import entries

_LIBRARY = regex(
    r"(?:^|/)(?:site-packages|dist-packages)/|(?:^|/)lib(?:64)?/python\d[\d.]*/|^<(?:frozen|string|"
    r"__array_function__|eval_with)"
    r"|(?:^|/)torch/(?:distributed|nn|autograd|utils|_\w+|cuda|optim)/|/bin/(?:torchrun|accelerate|"
    r"deepspeed)$|^/build/|/importlib/"
)
_OWN_IN_NCCL = regex(
    r"unhandled cuda error|ncclUnhandledCudaError|invalid usage|ncclInvalidUsage|Duplicate GPU|out of memory",
    re.IGNORECASE,
)


@cache
def symptoms() -> tuple[re.Pattern[str], frozenset[str]]:
    """Return what symptoms say, and the names of their types (knowledge/faults/symptoms.toml)."""
    table = entries("faults/symptoms.toml", "symptom")
    patterns = [pattern for row in table for pattern in row["patterns"]]
    return re.compile("|".join(patterns)), frozenset(name for row in table for name in row.get("types", ()))


def is_library(path: str) -> bool:
    """Return whether a frame's file belongs to Python, torch or an installed package, not to the user's code."""
    return bool(_LIBRARY.search(path.replace("\\", "/")))


def is_symptom(kind: str, message: str) -> bool:
    """Return whether an exception reports what the communication layer noticed, not what this rank did."""
    text = f"{kind}: {message}"
    said, types = symptoms()
    if said.search(text):
        return True
    return re.split(r"\.|::", kind)[-1] in types and not _OWN_IN_NCCL.search(text)
