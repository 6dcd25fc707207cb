"""The thread of a rank that runs its training: the main thread, or one that a framework started for it, as Ray Train does."""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.model.frames import Frame, Stack

_STARTS = ("threading.py", "concurrent/futures/thread.py")  # whose functions are below what a thread runs


def issuers(stacks: Iterable[Stack]) -> frozenset[tuple[str, str]]:
    """Return the functions (name, file) that threads run which issued all of a job's collectives; empty where a main thread issued one."""
    roots = [_root(stack) for stack in stacks if stack]
    return (
        frozenset((root.name, root.file) for root in roots if root is not None) if all(roots) else frozenset()
    )


def trains(stack: Stack, functions: frozenset[tuple[str, str]]) -> bool:
    """Return whether a thread runs one of these functions."""
    root = _root(stack) if functions else None
    return root is not None and (root.name, root.file) in functions


def _root(stack: Stack) -> Frame | None:
    """Return the outermost frame of what a thread runs, None for a main thread."""
    if not stack or not stack[-1].file.endswith(_STARTS):
        return None
    return next((frame for frame in reversed(stack) if not frame.file.endswith(_STARTS)), None)
