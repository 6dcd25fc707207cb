"""Hang forensics for distributed PyTorch jobs: `hangscope.analyze("dumps/")`.

Everything is imported on first use, so that `import hangscope` costs a scheduler nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hangscope._version import __version__

if TYPE_CHECKING:
    from hangscope.api import Report, analyze
    from hangscope.errors import HangscopeError, NoInputError, UsageError
    from hangscope.safely import analyze_safely

_HOME = {
    "analyze": "hangscope.api",
    "analyze_safely": "hangscope.safely",
    "Report": "hangscope.api",
    "HangscopeError": "hangscope.errors",
    "NoInputError": "hangscope.errors",
    "UsageError": "hangscope.errors",
}

__all__ = [
    "HangscopeError",
    "NoInputError",
    "Report",
    "UsageError",
    "__version__",
    "analyze",
    "analyze_safely",
]


def __getattr__(name: str) -> Any:
    """Import a public name on first use (PEP 562)."""
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'hangscope' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
