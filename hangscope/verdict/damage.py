"""Whether a verdict rests on a file or a line that is damaged: then it cannot be as sure as it looks."""

from __future__ import annotations

from hangscope.causes.case import Case, Match

#: Notes that say of a file that its bytes are not what was written. A file that was not read at all is no evidence.
CODES = frozenset(
    {
        "truncated",
        "corrupt",
        "parser_failed",
        "bad_archive",
        "bad_member",
        "malformed_entries",
        "malformed",
        "odd_values",
        "too_many_members",
    }
)
_REPLACED = "\ufffd"  # stands for bytes that are no text


def damage(case: Case, match: Match) -> str:
    """Return why a match rests on damaged evidence, or nothing: by the notes on its files, or bytes that are no text in its lines."""
    damaged = {note.file.split("!/")[0] for note in case.incident.notes if note.code in CODES and note.file}
    for item in match.evidence:
        if item.stance != "for":
            continue
        if item.source is not None and item.source.file.split("!/")[0] in damaged:
            return f"{item.source.file}, on which it rests, is damaged"
        if item.source is not None and _REPLACED in item.text:
            return f"a line of {item.source.file}, on which it rests, holds bytes that are no text"
    return ""
