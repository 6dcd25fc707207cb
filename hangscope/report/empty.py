"""The document of an analysis that could not be done: inconclusive, with the reason as its one warning."""

from __future__ import annotations

from hangscope.report.schema.document import SCHEMA, Document, Partial, WarningPart


def empty_document(message: str, hint: str, tool_version: str) -> Document:
    """Return a complete document without any claim."""
    return Document(
        schema=SCHEMA,
        status="inconclusive",
        headline=f"Inconclusive: {message}.",
        world_size=0,
        partial=Partial(True, "nothing could be analysed"),
        verdict=None,
        missing=(hint,) if hint else (),
        sources={"dump": 0, "log": 0, "stack": 0},
        warnings=(WarningPart("not_analysed", None, None, message, hint),),
        tool_version=tool_version,
    )
