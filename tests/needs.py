"""Marks for tests of what need not be installed; nothing is imported to find out."""

from __future__ import annotations

from importlib.util import find_spec

import pytest


def needs(*modules: str, extra: str = "test") -> pytest.MarkDecorator:
    """Return a mark that skips a test where one of these top-level modules is missing."""
    missing = [name for name in modules if find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"needs {', '.join(missing)}: pip install '.[{extra}]'")
