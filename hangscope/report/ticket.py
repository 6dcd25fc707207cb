"""The report for a ticket, as blocks: what `markdown.py` writes in each dialect. Short, the deciding facts first."""

from __future__ import annotations

from hangscope.model.conclusion import Evidence
from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report.reasons import (
    commands,
    deciding_facts,
    other_facts,
    read_words,
    rival_words,
    standstill,
    user_frame,
    weighed,
)
from hangscope.report.schema.document import CulpritPart, Document, VerdictPart
from hangscope.report.words import below_title, duration
from hangscope.verdict.claims import accounts_for

_CULPRITS, _FACTS, _AGAINST, _WARNINGS, _WEIGHED, _HOSTS = 8, 6, 6, 6, 3, 4


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text; `code` is shown as it is, `strong` is bold."""

    text: str
    code: bool = False
    strong: bool = False


Line = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the ticket: lines under a title, or pairs of a name and a line. `form`: items, steps, pairs or text."""

    title: str
    form: str
    lines: tuple[Line, ...] = ()
    pairs: tuple[tuple[str, Line], ...] = ()


def plain(text: str) -> Line:
    """Return text as a line."""
    return (Piece(text),)


def ticket(document: Document) -> tuple[Block, ...]:
    """Return the blocks of a report, without those that would be empty."""
    verdict = document.verdict
    blocks = []
    if document.partial.is_partial:
        blocks.append(
            Block("", "text", ((Piece("Partial data: ", strong=True), Piece(document.partial.text)),))
        )
    if verdict is not None:
        explanation = below_title(document.title, verdict.explanation)
        blocks.append(Block("", "text", (plain(explanation),) if explanation else ()))
        blocks.append(Block("Why", "items", tuple(_fact(f) for f in deciding_facts(verdict))))
        pairs = [*_pairs(verdict, document), *_incident(document)]
        blocks.append(Block("", "pairs", pairs=tuple(pairs)))
        blocks.append(Block("Do next", "steps", tuple(plain(a) for a in verdict.advice)))
        blocks.append(Block("Evidence", "items", _some([_fact(f) for f in other_facts(verdict)], _FACTS)))
        rest = [*other_facts(verdict, "against"), *other_facts(verdict, "missing")]
        blocks.append(Block("Against, and missing", "items", _some([_fact(f) for f in rest], _AGAINST)))
        blocks.append(Block("Also possible", "items", _weighed(document, verdict)))
        excluded = [(Piece(r.cause, code=True), Piece(f": {r.because}")) for r in document.ruled_out]
        blocks.append(Block("Ruled out", "items", _some([*excluded], _WEIGHED)))
        blocks.append(
            Block("Collect next", "items", tuple(plain(c.text) for c in verdict.collect[:_WEIGHED]))
        )
    else:
        read = read_words(document) or "nothing"
        blocks.append(
            Block("", "text", (plain(f"Read: {read}, of {counted(document.world_size, 'rank')}."),))
        )
        blocks.append(Block("Collect next time", "items", tuple(plain(m) for m in document.missing)))
        blocks.append(Block("", "pairs", pairs=tuple(_incident(document))))
    warnings = [plain(f"{w.file}: {w.message}" if w.file else w.message) for w in document.warnings]
    blocks.append(Block("Warnings", "items", _some(warnings, _WARNINGS)))
    return tuple(b for b in blocks if b.lines or b.pairs)


def _some(lines: list[Line], most: int) -> tuple[Line, ...]:
    """Return at most so many lines, and how many more there are."""
    more = len(lines) - most
    return (*lines[:most], plain(f"and {more} more in the HTML report")) if more > 0 else tuple(lines)


def _weighed(document: Document, verdict: VerdictPart) -> tuple[Line, ...]:
    rivals = weighed(document)
    if not rivals:
        return tuple((Piece(a.cause, code=True), Piece(f": {a.why}")) for a in verdict.alternatives)
    lines = []
    for h in rivals[:_WEIGHED]:
        lines.append((Piece(h.cause, code=True), Piece(rival_words(h))))
    return tuple(lines)


def _pairs(verdict: VerdictPart, document: Document) -> list[tuple[str, Line]]:
    reasons = "; ".join(document.confidence_why)
    rows: list[tuple[str, Line]] = [
        ("Cause", (Piece(verdict.cause, code=True), Piece(f" ({verdict.category})"))),
        ("Confidence", plain(verdict.confidence + (f" ({reasons})" if reasons else ""))),
        ("Who", plain(_who(verdict))),
    ]
    location = verdict.location
    if location is not None:
        place = f"{location.file}:{location.line}"
        rows.append(("Where", (Piece(place, code=True), Piece(" in "), Piece(location.function, code=True))))
    frame = user_frame(verdict.waiting_call.frames) if verdict.waiting_call is not None else None
    if frame is not None:
        place = f"{frame.file}:{frame.line}"
        rows.append(("The others at", (Piece(place, code=True), Piece(" in "), Piece(frame.name, code=True))))
    if verdict.op:
        seq = f" seq {verdict.seq}" if verdict.seq is not None else ""
        group = f" on group {verdict.group.label}" if verdict.group is not None else ""
        rows.append(("What", (Piece(verdict.op, code=True), Piece(seq + group))))
    if verdict.api:
        rows.append(("Inside", (Piece(verdict.api, code=True),)))
    if verdict.waiting_ranks:
        explains = verdict.explains
        rows.append(
            (
                "Blocked",
                plain(
                    ranks_phrase(verdict.waiting_ranks)
                    + (
                        f"; the root cause accounts for {accounts_for(explains.ranks, explains.of)}"
                        if explains.ranks
                        else ""
                    )
                ),
            )
        )
        behind = len(verdict.waiting_ranks) - len(verdict.in_call)
        if behind and verdict.op and verdict.in_call:
            rows.append(
                (
                    "In it",
                    plain(
                        f"{ranks_phrase(verdict.in_call)}; {behind:,} more {'is' if behind == 1 else 'are'} indirectly blocked"
                    ),
                )
            )
    if verdict.suspect_ranks and verdict.suspect_ranks != verdict.culprit_ranks:
        rows.append(("Suspects", plain(ranks_phrase(verdict.suspect_ranks))))
    rows += [("Run now", (Piece(command, code=True),)) for command in commands(document)]
    rows.append(("Fingerprint", (Piece(verdict.fingerprint, code=True),)))
    return [(name, line) for name, line in rows if any(piece.text for piece in line)]


def _incident(document: Document) -> list[tuple[str, Line]]:
    """Return when and where it happened, whether it was seen before, and where the report is."""
    verdict, page = document.verdict, document.page
    since = standstill(verdict) if verdict is not None else ""
    strip = page.strip if page is not None else None
    if strip is not None and strip.stalled_s is not None and ", for " not in since:
        since += f", for {duration(strip.stalled_s)}" if since else f"for {duration(strip.stalled_s)}"
    rows: list[tuple[str, Line]] = [("Since", plain(since))]
    if verdict is None or not any(culprit.host for culprit in verdict.culprits):
        hosts = sorted({rank.host for rank in document.ranks if rank.host})
        more = f" and {len(hosts) - _HOSTS} more" if len(hosts) > _HOSTS else ""
        rows.append(("Hosts", plain(", ".join(hosts[:_HOSTS]) + more)))
    if document.seen_before is not None:
        rows.append(("Seen before", plain(document.seen_before.text)))
    if document.report_path:
        rows.append(("Report", (Piece(document.report_path, code=True),)))
    return [(name, line) for name, line in rows if any(piece.text for piece in line)]


def _who(verdict: VerdictPart) -> str:
    if not verdict.culprits:
        return ranks_phrase(verdict.culprit_ranks) if verdict.culprit_ranks else "no rank is named"
    if len(verdict.culprit_ranks) > _CULPRITS:
        return ranks_phrase(verdict.culprit_ranks)
    return ", ".join(map(_place, verdict.culprits))


def _place(entry: CulpritPart) -> str:
    """Return a named rank with its host, PID and GPU, as far as they are known."""
    known = [f"on {entry.host}"] if entry.host else []
    known += [
        f"{name} {value}" for name, value in (("GPU", entry.device), ("PID", entry.pid)) if value is not None
    ]
    return f"rank {entry.rank}" + (f" ({', '.join(known)})" if known else "")


def _fact(fact: Evidence) -> Line:
    lead = (Piece(f"{fact.stance}: ", strong=True),) if fact.stance != "for" else ()
    tail = (Piece(" ("), Piece(fact.at, code=True), Piece(")")) if fact.at else ()
    return (*lead, Piece(fact.text), *tail)
