"""What holds for every call of the command."""

from __future__ import annotations

from typing import Any


def quiet(result: Any) -> Any:
    """Check what holds for every call, and return it."""
    assert "Traceback" not in result.stdout + result.stderr
    return result
