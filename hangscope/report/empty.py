"""The view of an analysis that could not be done: inconclusive, with the reason as its one warning."""

from __future__ import annotations

from typing import Any


def empty_view(message: str, hint: str, tool_version: str) -> dict[str, Any]:
    """Return a whole view that claims nothing."""
    return {
        "schema": "hangscope.report/1",
        "status": "inconclusive",
        "headline": f"Inconclusive: {message}.",
        "world_size": 0,
        "partial": {"is_partial": True, "text": "nothing could be analysed", "missing_ranks": ""},
        "verdict": None,
        "confidence_why": [],
        "missing": [hint] if hint else [],
        "sources": {"dump": 0, "log": 0, "stack": 0},
        "candidates": [],
        "hypotheses": [],
        "groups": [],
        "ranks": [],
        "inputs": [],
        "coverage": {"files": 0, "used": 0, "set_aside": 0, "ignored": 0, "windows": []},
        "stacks": {},
        "lanes": None,
        "rankmap": None,
        "waitfor": None,
        "timeline": None,
        "warnings": [{"code": "not_analysed", "file": None, "line": None, "message": message, "hint": hint}],
        "tool_version": tool_version,
    }
