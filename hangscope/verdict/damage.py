"""Whether a verdict rests on what is damaged: then it is not as sure as it looks."""

from __future__ import annotations

from hangscope.causes.case import Case, Match
from hangscope.explain.statements.deaths import REPLACED
from hangscope.model.incident import Incident

#: Notes that say of a file that its bytes are not what was written. A file that was not read at all is no evidence.
CODES = frozenset(
    {
        "truncated", "corrupt", "parser_failed", "bad_archive", "bad_member", "malformed_entries", "malformed", "odd_values",
        "odd_name", "torn_table", "contradiction", "too_many_members",
    }
)  # fmt: skip
#: Causes that lines of text establish by themselves, whatever the calls show; who dies may leave half a dump.
BY_TEXT = frozenset({"crashed_rank", "early_exit", "model_mismatch", "init_hang"})


def damaged_files(incident: Incident) -> set[str]:
    """Return the files that notes report as damaged."""
    return {note.file.split("!/")[0] for note in incident.notes if note.code in CODES and note.file}


def damage(case: Case, match: Match) -> str:
    """Return why a match rests on damaged evidence, or nothing: by the notes on its files, or bytes that are no text in its lines."""
    damaged, ranks = damaged_files(case.incident), case.incident.ranks
    rests: set[str | None] = {item.source.file for item in match.evidence if item.source is not None}
    if match.cause in BY_TEXT:  # what would explain its end may be lost
        rests.update(file for rank in match.culprits if rank in ranks for file in ranks[rank].files)
    elif not case.from_text:
        # Calls are compared: those of the culprits, and of one who waits for them.
        compared = {*match.culprits, *case.finding.culprits, case.finding.stuck.rank}
        rests |= {ranks[rank].calls_file for rank in compared if rank in ranks}
    for file in sorted({file.split("!/")[0] for file in rests if file} & damaged):
        return f"it rests on {file}, which is damaged"
    for item in match.evidence:
        if item.source is not None and REPLACED in item.text:
            return f"it rests on a line of {item.source.file} that contains invalid bytes"
    for event in case.finding.events:
        if REPLACED in event.text:
            return f"it rests on a line of {event.file} that contains invalid bytes"
    return ""
