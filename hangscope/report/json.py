"""The JSON report: the document, less what only the page needs; and its compact form inside the page.

Format history of `hangscope.report/1`: 0.1.0 first version; 0.2.0 adds `verdict.deciding`, `verdict.api`, `verdict.since`,
`verdict.until`, `hypotheses` and `coverage.windows_left_out`, then `stacks`.

In the page, long lists of ranks are short text: `[0, 1, 2, 5]` is `0-2,5` after a mark. No text of a report holds control characters, so
that nothing else begins with the mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hangscope.model.codec import to_plain
from hangscope.model.rankset import compress, spans
from hangscope.report.schema.document import Document


def report_data(document: Document) -> dict[str, Any]:
    """Return the JSON report as plain data."""
    data: dict[str, Any] = to_plain(replace(document, page=None))
    return data


def render_json(document: Document) -> str:
    """Return the report as JSON text with a final newline; the same document gives the same bytes."""
    return json.dumps(report_data(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


MARK = "\x01"
LONG_LIST = 64
MOST_NUMBERS = 1 << 23  # of one report, written out


def with_spans(value: Any) -> Any:
    """Return plain data in which long ascending lists of numbers are text after the mark."""
    if isinstance(value, dict):
        return {key: with_spans(item) for key, item in value.items()}
    if not isinstance(value, list):
        return value
    if len(value) > LONG_LIST and all(type(item) is int and item >= 0 for item in value):
        return MARK + compress(value) if value == sorted(set(value)) else value
    return [with_spans(item) for item in value]


def without_spans(value: Any) -> Any:
    """Return plain data with its lists written out again. Raises ValueError for marked text of another form."""
    written = 0

    def numbers(text: str) -> Iterator[int]:
        nonlocal written
        for span in spans(text):
            written += len(span)
            if written > MOST_NUMBERS:
                raise ValueError(f"more than {MOST_NUMBERS:,} ranks in lists")
            yield from span

    def written_out(value: Any) -> Any:
        if isinstance(value, str) and value.startswith(MARK):
            return list(numbers(value[len(MARK) :]))
        if isinstance(value, dict):
            return {key: written_out(item) for key, item in value.items()}
        return [written_out(item) for item in value] if isinstance(value, list) else value

    return written_out(value)
