"""The JSON report: the document, less what only the page needs.

Format history of `hangscope.report/1`: 0.1.0 first version; 0.2.0 adds `verdict.deciding`, `verdict.api`, `verdict.since`,
`verdict.until`, `hypotheses` and `coverage.windows_left_out`, then `stacks`.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hangscope.model.codec import to_plain
from hangscope.report.schema.document import Document


def report_data(document: Document) -> dict[str, Any]:
    """Return the JSON report as plain data."""
    data: dict[str, Any] = to_plain(replace(document, page=None))
    return data


def render_json(document: Document) -> str:
    """Return the report as JSON text with a final newline; the same document gives the same bytes."""
    return json.dumps(report_data(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
