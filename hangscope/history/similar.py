"""Which incidents are of one bug: by cause, calls, group role and lines, never by rank numbers, hosts or sizes.

Two incidents are alike where what they share outweighs what differs, and nothing that is known of both speaks against it: two
bugs of one function have other lines, unless all lines moved by the same distance because the file was edited.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from dataclasses import replace

from hangscope.analysis import Analysis
from hangscope.errors import HangscopeError
from hangscope.history.entry import Entry, entry_of, uses_of
from hangscope.history.store import open_store
from hangscope.model.dataclass import dataclass
from hangscope.report.masking.secrets import presentable
from hangscope.report.schema.document import Document, SeenBefore, WarningPart
from hangscope.report.words import utc

ALIKE = 0.8  # share of the weight of what is known that has to agree
MOVED = 200  # lines that an edit may move both sides of a divergence by
#: What is compared and how much it weighs; what only one of the two knows counts a quarter against it.
_WEIGHTS = (("cause", 3), ("function", 4), ("waiting_function", 2), ("op", 2), ("differs", 2), ("role", 1))
#: Causes of a rank that issued nothing: where its line is the one that its peers wait at, it says nothing about the bug.
_SILENT = frozenset({"stuck_rank", "slow_rank", "crashed_rank", "early_exit", "gpu_stall", "network_stall", "init_hang", "unknown"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Match:
    """A similar incident, and its similarity (from 0 to 1)."""

    entry: Entry
    score: float


def similarity(one: Entry, other: Entry) -> float:
    """Return how alike two incidents are, from 0 to 1; 0 where they cannot be of one bug."""
    if not comparable(one) or not comparable(other) or not _same_lines(one, other):
        return 0.0
    agreed = total = 0.0
    for name, weight in _WEIGHTS:
        mine, theirs = _of(one, name), _of(other, name)
        if mine or theirs:
            total += weight if mine and theirs else weight / 4
            agreed += weight if mine == theirs else 0
    return agreed / total if total else 0.0


def similar(entry: Entry, others: Iterable[Entry]) -> list[Match]:
    """Return the other incidents that are alike, the most alike first, then the latest."""
    found = [
        Match(other, score)
        for other in others
        if other.id != entry.id and (score := similarity(entry, other)) >= ALIKE
    ]
    return sorted(found, key=lambda match: (-round(match.score, 3), -match.entry.when, match.entry.id))


def seen_before(matches: list[Match]) -> SeenBefore:
    """Return what a report says of earlier incidents of its bug."""
    if not matches:
        return SeenBefore(0)
    by_time = sorted((match.entry for match in matches), key=lambda e: (e.when, e.id))
    last = by_time[-1]
    note = next((entry.note for entry in reversed(by_time) if entry.note), "")
    ids = tuple(entry.id for entry in reversed(by_time))[:8]
    first_day, last_day = (utc(int(entry.when * 1e9))[:10] for entry in (by_time[0], last))
    return SeenBefore(len(by_time), first_day, last_day, last.job, last.report, note, ids)


def comparable(entry: Entry) -> bool:
    """Return whether the culprit's own line in the user's code is known; without it, two bugs cannot be distinguished."""
    return entry.status == "hang" and bool(_of(entry, "function"))


def _of(entry: Entry, name: str) -> str:
    value = str(getattr(entry, name))
    if name == "cause" and value == "unknown":
        return ""
    if name == "waiting_function" and value:
        return f"{entry.waiting_file}:{value}"
    if name == "function" and value:
        at_the_peers = (entry.file, entry.line) == (entry.waiting_file, entry.waiting_line)
        return "" if at_the_peers and entry.cause in _SILENT else f"{entry.file}:{value}"
    return value


def _same_lines(one: Entry, other: Entry) -> bool:
    """Return whether the lines of both sides agree, as they are or moved by one distance."""
    pairs = ((one.line, other.line), (one.waiting_line, other.waiting_line))
    moved = [a - b for a, b in pairs if a and b]
    if not any(moved):
        return True
    alike = len(moved) == 2 and moved[0] == moved[1] and one.file == one.waiting_file
    return alike and abs(moved[0]) <= MOVED


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
