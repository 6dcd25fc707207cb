"""Stacks as `py-spy dump --json` writes them."""

from __future__ import annotations

import json
from typing import Any

from hangscope.ingest.lines.prefixes import clean
from hangscope.model.frames import Frame, Stack

FRAMES_KEPT = 500
THREADS_KEPT = 5000
#: name, stack with the innermost frame first, whether it is the main thread
Thread = tuple[str, Stack, bool]


def looks_like_spy_json(head: bytes) -> bool:
    """Return whether a file begins as such a list does."""
    start = head.lstrip()[:4096]
    return start[:1] == b"[" and b'"thread_name"' in start and b'"frames"' in start


def spy_json(data: bytes) -> dict[int | None, list[Thread]]:
    """Return the threads by process id, the main one first, or nothing where it is something else."""
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    processes: dict[int | None, list[Thread]] = {}
    for row in content if isinstance(content, list) else [content]:
        if not isinstance(row, dict) or not isinstance(row.get("frames"), list):
            continue
        pid = row.get("pid") if isinstance(row.get("pid"), int) else None
        frames = tuple(_frame(f) for f in row["frames"][:FRAMES_KEPT] if isinstance(f, dict))
        name = clean(str(row.get("thread_name") or ""))
        threads = processes.setdefault(pid, [])
        if len(threads) < THREADS_KEPT:
            threads.append((name, frames, name == "MainThread"))
    for threads in processes.values():
        threads.sort(key=lambda thread: not thread[2])
    return processes


def function_name(name: str) -> str:
    """Return the name of a function as tracebacks have it: py-spy (0.4.1) gives the qualified one from Python 3.11 on."""
    return name if "::" in name or "(" in name else name.rpartition(".")[2] or name


def _frame(row: dict[str, Any]) -> Frame:
    line, name = row.get("line"), clean(str(row.get("name") or ""))
    file = row.get("filename") or row.get("short_filename") or ""
    return Frame(function_name(name), clean(str(file)), line if isinstance(line, int) else 0)
