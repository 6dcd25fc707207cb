"""The terminal report: one screen, like a compiler's diagnosis: message, labels, why, notes, help."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Iterable, Iterator

from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Evidence
from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report import reasons
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.words import at_line, below_title, first_of

_COLOURS = {"error": "1;31", "warning": "1;33", "ok": "1;32", "label": "1;36", "dim": "2", "bold": "1"}
_STYLES = {"help": "ok", "warning": "warning", "against": "warning", "why": "bold"}
MIN_WIDTH, MAX_WIDTH = 60, 110
_NOTES, _AGAINST, _WARNINGS, _RIVALS, _COLLECT, _OUTPUT = 4, 2, 3, 3, 2, 1
PLACE = "-->"
Label = tuple[str, str]


def render_text(
    document: Document, *, color: bool = False, width: int | None = None, verbose: bool = False
) -> str:
    """Return the report for a terminal; `width` defaults to the terminal's. `verbose` shows all evidence and warnings."""
    columns = max(MIN_WIDTH, min(MAX_WIDTH, width or shutil.get_terminal_size((100, 24)).columns))

    def paint(text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if color else text

    head, style, message = _head(document)
    parts = [(f"{paint(head, style)}: {message}", "  ")]
    if document.partial.is_partial:  # before any claim
        parts.insert(0, (f"{paint('partial data', 'warning')}: {document.partial.text}", "  "))
    if more := below_title(message, document.found.explanation):
        parts.append((f"  {more}", "  "))
    for label, text in labelled(document, verbose=verbose):
        if label == PLACE:
            parts.append((f"  {paint(label, 'label')} {text}", "      "))
        else:
            name = paint(f"{label}:", _STYLES.get(label, "label"))
            parts.append((f"   {paint('=', 'dim')} {name} {text}", "       "))
    return "".join(f"{line}\n" for text, indent in parts for line in _wrapped(text, columns, indent))


def _head(document: Document) -> tuple[str, str, str]:
    status, verdict = document.status, document.verdict
    # The head says these words already.
    headline = document.headline.removeprefix("Inconclusive: ").removeprefix("No hang: ")
    if verdict is None:
        return status, "ok" if status == "no_hang" else "warning", headline
    # A job that was terminated from outside while it made progress is no hang of its own.
    name = "external termination" if verdict.category == "external" else verdict.cause
    return f"{status}[{name}]", "error" if status == "hang" else "warning", verdict.title or headline


def labelled(document: Document, *, verbose: bool) -> Iterator[Label]:
    """Yield what the report states, each with its label, in the order of the screen."""
    verdict = document.verdict
    if verdict is None:
        of = f", of {size}" if (size := reasons.size_words(document)) else ""
        yield "read", f"{reasons.read_words(document) or 'nothing'}{of}"
        yield from (("why", text) for text in document.confidence_why)
        yield from (("missing", text) for text in document.missing)
    else:
        yield from _places(verdict, document.status == "no_hang")
        yield from (("why", _fact(fact)) for fact in reasons.deciding_facts(verdict))
        if verdict.explains.ranks and (explained := reasons.accounts(document)):
            yield "accounts for", explained
        if since := reasons.standstill(document):
            yield "when", f"no progress since {since}"
        yield from _notes(document, verdict, verbose)
        yield from _rest(document, verdict, verbose)
        if document.seen_before is not None and document.seen_before.times:
            yield "seen before", document.seen_before.text
        yield from (
            ("help", step) for step in verdict.advice if not reasons.says((verdict.explanation,), step)
        )
        yield from (("run now", command) for command in reasons.commands(document))
    warnings = [
        (f"{w.file}: " if w.file else "") + w.message + (f" ({w.hint})" if w.hint else "")
        for w in document.warnings
    ]
    most = len(warnings) if verbose else _WARNINGS
    yield from (("warning", text) for text in first_of(warnings, most, "{} more; -v shows them"))


def _places(verdict: VerdictPart, over: bool) -> Iterator[Label]:
    at, call = reasons.own_place(verdict), verdict.culprit_call
    if at is not None:
        who = f"rank {at.rank}" if at.rank is not None else "one side"
        places = {(frame.file, frame.line) for frame in call.frames} if call is not None else set()
        did = reasons.culprit_call(verdict) if not places or (at.file, at.line) in places else ""
        yield PLACE, f"{at_line(at.file, at.line)} in {at.function}  ({f'{who} {did}' if did else who})"
    waiting = verdict.waiting_call
    if waiting is not None and verdict.in_call and (frame := user_frame(waiting.frames)) is not None:
        ranks = waiting.ranks or verdict.in_call
        state = "waited" if over else verdict.wait_ends.state(ranks)
        blocked = f"{ranks_phrase(ranks)}, {state} in {waiting.op or 'a collective'}"
        yield PLACE, f"{at_line(frame.file, frame.line)} in {frame.name}  ({blocked})"
    if verdict.api:
        yield "inside", f"{verdict.api}, {reasons.of_library_call(verdict)}"


def _notes(document: Document, verdict: VerdictPart, verbose: bool) -> Iterator[Label]:
    """Yield the evidence that does not decide, and lines of the logs."""
    notes, against = reasons.other_facts(verdict), reasons.other_facts(verdict, "against")
    yield from (("note", _fact(fact)) for fact in notes[: None if verbose else _NOTES])
    if not verbose and len(notes) > _NOTES:
        yield "note", f"{counted(len(notes) - _NOTES, 'more fact')}; -v shows them"
    yield from (("against", _fact(fact)) for fact in against[: None if verbose else _AGAINST])
    steps = (*verdict.advice, *(item.text for item in verdict.collect))
    missing = reasons.still_missing(verdict, steps) if verbose else ()
    yield from (("missing", _fact(fact)) for fact in missing)
    for line in reasons.outlier_lines(document)[: None if verbose else _OUTPUT]:
        yield "output", f"{line.note}: {line.text}  [{line.source}]"


def _rest(document: Document, verdict: VerdictPart, verbose: bool) -> Iterator[Label]:
    yield "confidence", reasons.confidence(document)
    for cause, why in reasons.rivals(document)[: None if verbose else _RIVALS]:
        yield "or", f"{cause}{why}"
    if verdict.suspect_ranks and verdict.suspect_ranks != verdict.culprit_ranks:
        yield "suspects", ranks_phrase(verdict.suspect_ranks)
    for excluded in document.ruled_out if verbose else ():
        who = f" of {ranks_phrase(excluded.ranks)}" if excluded.ranks else ""
        yield "ruled out", f"{excluded.cause}{who}: {excluded.because}"
    said = (verdict.explanation, *verdict.advice)
    for wanted in verdict.collect[: None if verbose else _COLLECT]:
        if not reasons.says(said, wanted.text):
            yield "next", wanted.text


def _fact(fact: Evidence) -> str:
    return fact.text + (f"  [{fact.at}]" if fact.at else "")


def _wrapped(text: str, width: int, indent: str) -> Iterable[str]:
    """Return text in lines of a width, which colors do not count for."""
    inner = text.lstrip(" ")
    painted = len(text) - len(re.sub(r"\x1b\[[0-9;]*m", "", text))
    lead = text[: len(text) - len(inner)]
    return textwrap.wrap(
        inner, width + painted, initial_indent=lead, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )  # fmt: skip
