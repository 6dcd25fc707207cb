"""The JSON report: the view itself, less what only the page needs.

Format history of `hangscope.report/1`: 0.1.0 first version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

_PAGE_ONLY = ("lanes", "rankmap", "waitfor", "timeline", "stacks")


def render_json(view: Mapping[str, Any]) -> str:
    """Return the report as JSON text with a final newline; the same view gives the same bytes."""
    return (
        json.dumps(
            {k: v for k, v in view.items() if k not in _PAGE_ONLY},
            indent=2,
            ensure_ascii=False,
            allow_nan=False,
        )
        + "\n"
    )
