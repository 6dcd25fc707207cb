"""Whether a verdict rests on what is damaged: then it is not as sure as it looks."""

from __future__ import annotations

from hangscope.causes.case import Case, Match
from hangscope.explain.statements.pending_calls import is_of, last_calls
from hangscope.explain.statements.torn_lines import is_garbled
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.catalog import CATALOG
from hangscope.model.events import Event
from hangscope.model.incident import Incident

#: Notes that say of a file that its bytes are not what was written. A file that was not read at all is no evidence.
CODES = frozenset(
    {
        "truncated", "corrupt", "parser_failed", "bad_archive", "bad_member", "malformed_entries", "malformed", "odd_values",
        "odd_name", "torn_table", "contradiction", "too_many_members",
    }
)  # fmt: skip


def damaged_files(incident: Incident) -> set[str]:
    """Return the files that notes report as damaged."""
    return {note.file.split("!/")[0] for note in incident.notes if note.code in CODES and note.file}


def cut(incident: Incident, event: Event) -> str:
    """Return that a log may end within the line of an event, or nothing: what would follow may show that it was survived."""
    ends = {(note.file, note.line) for note in incident.notes if note.code == "open_end"}
    return f"{event.file} ends in the line of the error" if (event.file, event.line) in ends else ""


def damage(case: Case, match: Match) -> str:
    """Return why a match rests on damaged evidence, or nothing: by the notes on its files, or lines that are garbled."""
    ranks, finding = case.incident.ranks, case.finding
    lines = [(item.source.file, item.text) for item in match.evidence if item.source is not None]
    files: set[str | None] = {file for file, _ in lines}
    if CATALOG[match.cause].by_text:  # what would explain its end may be lost
        files.update(file for rank in match.culprits if rank in ranks for file in ranks[rank].files)
    elif not case.from_text:  # collectives are compared: of the culprits, and of one that waits for them
        compared = {*match.culprits, *finding.culprits, finding.stuck.rank}
        files |= {ranks[rank].calls_file for rank in compared if rank in ranks}
        for rank in sorted(r for r in {*compared, *finding.waiting} if r is not None):
            if _unlike_its_stack(case, rank):
                return f"the stack of rank {rank} shows another collective than its dump, which may be older or another rank's"
    for file in sorted({file.split("!/")[0] for file in files if file} & damaged_files(case.incident)):
        return f"it rests on {file}, which is damaged"
    lines += [(event.file, event.text) for event in finding.events]
    mangled = {(e.file, e.line) for e in case.statements.all(RankException) if e.mangled}
    for source in (item.source for item in match.evidence if item.source is not None):
        if (source.file, source.line) in mangled:
            return f"it rests on a traceback in {source.file} within which lines are damaged"
    for file in [file for file, text in lines if is_garbled(text)][:1]:
        return f"it rests on a line of {file} that contains invalid bytes, or one piece again and again"
    return ""


def _unlike_its_stack(case: Case, rank: int) -> bool:
    """Return whether a stack shows a rank in another collective, at another line, than the last ones that its dump recorded."""
    where, record = case.stacks.get(rank), case.incident.ranks.get(rank)
    if where is None or record is None or not where.inside or record.dump_file is None:
        return False
    last = last_calls(case.incident, rank)
    return bool(last) and all(kind.stack and not is_of(kind, where) for kind in last)
