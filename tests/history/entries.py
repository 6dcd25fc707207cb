"""Incidents of a store, made for tests."""

from __future__ import annotations

from typing import Any

from hangscope.history.entry import Entry

_PLAIN: dict[str, Any] = {
    "recorded": 1_795_000_000.0,
    "happened": 1_794_900_000.0,
    "job": "job-17",
    "status": "hang",
    "cause": "rank_conditional_collective",
    "category": "code",
    "confidence": "medium",
    "title": "Rank 3 called barrier at train.py:20 in save",
    "fingerprint": "f",
    "culprits": "3",
    "hosts": "gpu07",
    "world_size": 8,
    "group_name": "0 (default_pg)",
    "role": "world",
    "op": "all_reduce",
    "differs": "barrier",
    "seq": 9,
    "file": "train.py",
    "line": 20,
    "function": "save",
    "waiting_file": "train.py",
    "waiting_line": 40,
    "waiting_function": "step",
    "duration_s": 600.0,
    "rank_hours": 1.3,
    "versions": "hangscope 0.1.0",
    "report": "/reports/17.html",
}


def entry(id: str, **changed: Any) -> Entry:
    """Return an incident with what is given instead of what all have."""
    return Entry(id=id, **{**_PLAIN, **changed})
