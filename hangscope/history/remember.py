"""An analysis and the store: what it says of earlier incidents of the same bug, and the row that it adds."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import replace

from hangscope.analysis import Analysis
from hangscope.errors import HangscopeError
from hangscope.history.entry import entry_of, uses_of
from hangscope.history.similar import seen_before, similar
from hangscope.history.store import open_store
from hangscope.report.masking.secrets import presentable
from hangscope.report.schema.document import Document, WarningPart


def remember(
    document: Document,
    analysis: Analysis,
    store: str,
    paths: list[str],
    redacted: Collection[str] = (),
    began: float = 0.0,
) -> Document:
    """Return the document with what the store knows of its bug, and add the incident to the store.

    `began` is when the watched run began that the files are of: all reports on it are of one incident. A problem with the store causes one warning and never stops the analysis. Redacted texts are neither stored nor read from the store.
    """
    try:
        known = [] if "paths" in redacted else paths
        libraries, report = analysis.incident.libraries, document.report_path or ""
        entry = entry_of(document, known, time.time(), report, libraries, began)
        with open_store(store) as opened:
            seen = seen_before(similar(entry, opened.entries()))
            opened.add(entry, [] if "hosts" in redacted else uses_of(analysis))
    except Exception as error:
        text, hint = f"the store cannot be used: {type(error).__name__}: {error}", "please report this"
        if isinstance(error, HangscopeError):
            text, hint = error.message, error.hint
        warning = WarningPart("store_unavailable", None, None, presentable(text), hint)
        return replace(document, warnings=(*document.warnings, warning))
    if redacted:
        seen = replace(seen, last_job="", last_report="", note="")
    return replace(document, seen_before=seen)
