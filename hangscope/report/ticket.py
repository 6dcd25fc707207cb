"""The report for a ticket, as blocks: what `markdown.py` writes in each dialect. Short, the deciding facts first."""

from __future__ import annotations

from collections.abc import Iterable

from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import on_group
from hangscope.model.rankset import ranks_phrase
from hangscope.report import reasons
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.words import at_line, below_title, duration
from hangscope.verdict.claims import blocked_elsewhere
from hangscope.verdict.phrasing import sentence_case

_FACTS, _WARNINGS, _RIVALS = 6, 6, 3


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text; `code` is shown as it is, `strong` is bold."""

    text: str
    code: bool = False
    strong: bool = False


Line = tuple[Piece, ...]
Pair = tuple[str, Line]


@dataclass(frozen=True, slots=True)
class Block:
    """One part of the ticket: lines under a title, each with its name if `form` is pairs; it may be items, steps or text."""

    title: str
    form: str
    lines: tuple[Pair, ...]


def ticket(document: Document) -> list[Block]:
    """Return the blocks of a report, without those that would be empty."""
    verdict, partial = document.verdict, document.partial
    warned = (Piece("Partial data: ", strong=True), Piece(partial.text))
    blocks = [_block("", "text", [warned])] if partial.is_partial else []
    if verdict is not None:
        blocks += _of_verdict(document, verdict)
    else:
        read = f"Read: {reasons.read_words(document) or 'nothing'}, of {reasons.size_words(document) or 'no rank'}."
        blocks.append(_texts("", "text", [read]))
        blocks.append(_texts("Collect next time", "items", reasons.next_steps(document)))
        blocks.append(_pairs(_incident(document)))
    warnings = [f"{w.file}: {w.message}" if w.file else w.message for w in document.warnings]
    blocks.append(_items("Warnings", map(_plain, warnings), _WARNINGS))
    return [block for block in blocks if block.lines]


def _of_verdict(document: Document, verdict: VerdictPart) -> list[Block]:
    steps = reasons.next_steps(document)
    missing = [fact for fact in reasons.other_facts(verdict, "missing") if not reasons.says(steps, fact.text)]
    against = (*reasons.other_facts(verdict, "against"), *missing)
    explanation = below_title(document.title, verdict.explanation)
    excluded = ((Piece(r.cause, code=True), Piece(f": {r.because}")) for r in document.ruled_out)
    possible = ((Piece(cause, code=True), Piece(why)) for cause, why in reasons.rivals(document)[:_RIVALS])
    return [
        _texts("", "text", [explanation] if explanation else []),
        _items("Why", map(_fact, reasons.deciding_facts(verdict))),
        _pairs([*_answer(document, verdict), *_incident(document)]),
        _texts("Collect next time" if document.status == "inconclusive" else "Do next", "steps", steps),
        _items("Evidence", map(_fact, reasons.other_facts(verdict)), _FACTS),
        _items("Against, and missing", map(_fact, against), _FACTS),
        _items("Also possible", possible),
        _items("Ruled out", excluded, _RIVALS),
    ]


def _plain(text: str) -> Line:
    return (Piece(text),)


def _block(title: str, form: str, lines: Iterable[Line]) -> Block:
    return Block(title, form, tuple(("", line) for line in lines))


def _texts(title: str, form: str, texts: Iterable[str]) -> Block:
    return _block(title, form, map(_plain, texts))


def _items(title: str, lines: Iterable[Line], most: int = 1000) -> Block:
    """Return at most so many lines as items, and how many more there are."""
    found = list(lines)
    more = [_plain(f"and {len(found) - most} more in the HTML report")] if len(found) > most else []
    return _block(title, "items", [*found[:most], *more])


def _pairs(pairs: Iterable[Pair]) -> Block:
    return Block("", "pairs", tuple(pair for pair in pairs if any(piece.text for piece in pair[1])))


def _answer(document: Document, verdict: VerdictPart) -> list[Pair]:
    """Return what the verdict says, as pairs."""
    over = document.status == "no_hang"
    category = f" ({verdict.category})" if verdict.category != verdict.cause else ""
    rows: list[Pair] = [
        ("Cause", (Piece(verdict.cause, code=True), Piece(category))),
        ("Confidence", _plain(reasons.confidence(document))),
        ("Who", _plain(reasons.who(verdict))),
    ]
    if (at := reasons.own_place(verdict)) is not None:
        rows.append(("Where", _place(at.file, at.line, at.function)))
    waiting = verdict.waiting_call
    frame = user_frame(waiting.frames) if waiting is not None else None
    if waiting is not None and frame is not None:
        others = "The others at" if verdict.culprit_ranks else "Where"
        others = f"{sentence_case(ranks_phrase(waiting.ranks))} at" if waiting.ranks else others
        rows.append((others, _place(frame.file, frame.line, frame.name)))
    if verdict.op:
        seq = f" seq {verdict.seq}" if verdict.seq is not None else ""
        group = f" {on_group(verdict.group.label)}" if verdict.group is not None else ""
        rows.append(("What", (Piece(verdict.op, code=True), Piece(seq + group))))
    if verdict.api:
        whose = f", {reasons.of_library_call(verdict)}"
        rows.append(("Inside", (Piece(verdict.api, code=True), Piece(whose))))
    if blocked := verdict.waiting_ranks:
        explained = reasons.accounts(document)
        share = f"; the root cause accounts for {explained}" if explained else ""
        state = "Waited" if over else sentence_case(verdict.wait_ends.state(blocked))
        rows.append((state, _plain(ranks_phrase(blocked) + share)))
        if (behind := set(blocked) - set(verdict.in_call)) and verdict.op and verdict.in_call:
            more = "waited elsewhere" if over else blocked_elsewhere(verdict.wait_ends, behind)
            more = f"{len(behind):,} more {more}"
            rows.append(("In it", _plain(f"{ranks_phrase(verdict.in_call)}; {more}")))
    if verdict.suspect_ranks and verdict.suspect_ranks != verdict.culprit_ranks:
        rows.append(("Suspects", _plain(ranks_phrase(verdict.suspect_ranks))))
    rows += [("Run now", (Piece(command, code=True),)) for command in reasons.commands(document)]
    return [*rows, ("Fingerprint", (Piece(verdict.fingerprint, code=True),))]


def _place(file: str, line: int, function: str) -> Line:
    return Piece(at_line(file, line), code=True), Piece(" in "), Piece(function, code=True)


def _incident(document: Document) -> list[Pair]:
    """Return when and where it happened, whether it was seen before, and where the report is."""
    page = document.page
    since = reasons.standstill(document)
    strip = page.strip if page is not None else None
    if strip is not None and strip.stalled_s is not None and ", for " not in since:
        since += f"{', ' if since else ''}for {duration(strip.stalled_s)}"
    rows = [("Since", _plain(since)), ("Hosts", _plain(reasons.hosts(document)))]
    seen = document.seen_before.text if document.seen_before is not None else ""
    return [*rows, ("Seen before", _plain(seen)), ("Report", (Piece(document.report_path or "", code=True),))]


def _fact(fact: Evidence) -> Line:
    lead = (Piece(f"{fact.stance}: ", strong=True),) if fact.stance != "for" else ()
    tail = (Piece(" ("), Piece(fact.at, code=True), Piece(")")) if fact.at else ()
    said, mark, line = fact.text.partition(": [") if fact.kind == "log" and not fact.quoted else ("", "", "")
    if mark:  # a line with its prefix, after what it shows
        return (*lead, Piece(f"{said}: "), Piece(f"[{line}", code=True), *tail)
    return (*lead, Piece(fact.text, code=bool(fact.quoted)), *tail)
