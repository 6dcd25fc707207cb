"""The terminal report: one screen, like a compiler's diagnosis: message, labels, why, notes, help."""

from __future__ import annotations

import re
import shutil
import textwrap

from hangscope.model.conclusion import Evidence
from hangscope.model.rankset import counted, ranks_phrase
from hangscope.report.reasons import (
    commands,
    deciding_facts,
    other_facts,
    outlier_lines,
    read_words,
    rival_words,
    standstill,
    user_frame,
    weighed,
)
from hangscope.report.schema.document import Document, VerdictPart
from hangscope.report.words import below_title
from hangscope.verdict.claims import accounts_for

_COLOURS = {"error": "1;31", "warning": "1;33", "ok": "1;32", "label": "1;36", "dim": "2", "bold": "1"}
MIN_WIDTH, MAX_WIDTH = 60, 110
_NOTES, _AGAINST, _WARNINGS, _WEIGHED, _COLLECT, _OUTPUT = 4, 2, 3, 3, 2, 1


def render_text(
    document: Document, *, color: bool = False, width: int | None = None, verbose: bool = False
) -> str:
    """Return the report for a terminal; `width` defaults to the terminal's. `verbose` shows all evidence and warnings."""
    columns = width or shutil.get_terminal_size((100, 24)).columns
    return _Screen(document, color, columns, verbose).render()


class _Screen:
    def __init__(self, document: Document, color: bool, width: int, verbose: bool) -> None:
        self.document, self.color, self.verbose = document, color, verbose
        self.width = max(MIN_WIDTH, min(MAX_WIDTH, width))
        self.lines: list[str] = []

    def render(self) -> str:
        document, verdict = self.document, self.document.verdict
        status = document.status
        if document.partial.is_partial:  # before any claim
            self.put(f"{self.paint('partial data', 'warning')}: {document.partial.text}", indent="  ")
        # the head says these words already
        headline = document.headline.removeprefix("Inconclusive: ").removeprefix("No hang: ")
        if verdict is not None:
            style = "error" if status == "hang" else "warning"
            # A job that was terminated from outside while it made progress is no hang of its own.
            name = "external termination" if verdict.category == "external" else verdict.cause
            head = f"{'hang' if status == 'hang' else status}[{name}]"
            title = verdict.title or headline
            self.put(f"{self.paint(head, style)}: {title}", indent="  ")
            if explanation := below_title(title, verdict.explanation):
                self.put(f"  {explanation}", indent="  ")
            self.where(verdict)
            for fact in deciding_facts(verdict):
                self.fact("why", fact)
            self.standing(verdict)
            self.notes(verdict)
            if document.seen_before is not None and document.seen_before.times:
                self.labelled("seen before", document.seen_before.text)
            for advice in verdict.advice:
                if not _says(verdict.explanation, advice):
                    self.labelled("help", advice)
            for command in commands(document):
                self.labelled("run now", command)
        else:
            self.put(
                f"{self.paint(status, 'ok' if status == 'no_hang' else 'warning')}: {headline}", indent="  "
            )
            read = read_words(document) or "nothing"
            self.labelled("read", f"{read}, of {counted(document.world_size, 'rank')}")
            for text in document.missing:
                self.labelled("missing", text)
        self.warnings()
        return "\n".join(self.lines) + "\n"

    def where(self, verdict: VerdictPart) -> None:
        location, waiting, call = verdict.location, verdict.waiting_call, verdict.culprit_call
        if location is not None:
            who = f"rank {location.rank}" if location.rank is not None else "one side"
            places = {(frame.file, frame.line) for frame in call.frames} if call is not None else set()
            tail = ""
            if call is not None and call.op and (not places or (location.file, location.line) in places):
                there = call.seq == verdict.seq or call.group is not None
                tail = f", {'in' if there else 'last enqueued on that group:'} {call.op}"
                tail += f" seq {call.seq}" if call.seq is not None else ""
                tail += f" on group {call.group}" if call.group is not None else ""
            self.place(f"{location.file}:{location.line} in {location.function}", f"{who}{tail}")
        if waiting is not None and verdict.in_call:
            frame = user_frame(waiting.frames)
            ranks = ranks_phrase(verdict.in_call)
            if frame is not None:
                self.place(
                    f"{frame.file}:{frame.line} in {frame.name}",
                    f"{ranks}, blocked in {waiting.op or 'a collective'}",
                )
        if verdict.api:
            self.labelled("inside", f"{verdict.api}, the library call that makes this collective")

    def place(self, where: str, who: str) -> None:
        self.put(f"  {self.paint('-->', 'label')} {where}  ({who})", indent="      ")

    def standing(self, verdict: VerdictPart) -> None:
        explains = verdict.explains
        if explains.ranks:
            self.labelled("accounts for", accounts_for(explains.ranks, explains.of))
        if since := standstill(verdict):
            self.labelled("when", f"no progress since {since}")

    def notes(self, verdict: VerdictPart) -> None:
        notes = other_facts(verdict)
        for fact in notes if self.verbose else notes[:_NOTES]:
            self.fact("note", fact)
        if not self.verbose and len(notes) > _NOTES:
            self.labelled("note", f"{counted(len(notes) - _NOTES, 'more fact')}; -v shows them")
        against = other_facts(verdict, "against")
        for fact in against if self.verbose else against[:_AGAINST]:
            self.fact("against", fact)
        for fact in other_facts(verdict, "missing") if self.verbose else ():
            self.fact("missing", fact)
        lines = outlier_lines(self.document)
        for line in lines if self.verbose else lines[:_OUTPUT]:
            self.labelled("output", f"{line.note}: {line.text}  [{line.source.file}:{line.source.line}]")
        reasons = "; ".join(self.document.confidence_why)
        self.labelled("confidence", f"{verdict.confidence}" + (f" ({reasons})" if reasons else ""))
        others = weighed(self.document)
        for h in others[:_WEIGHED]:
            self.labelled("or", f"{h.cause}{rival_words(h)}")
        for item in verdict.alternatives if not others else ():
            self.labelled("or", f"{item.cause}: {item.why}")
        if verdict.suspect_ranks and verdict.suspect_ranks != verdict.culprit_ranks:
            self.labelled("suspects", ranks_phrase(verdict.suspect_ranks))
        for excluded in self.document.ruled_out if self.verbose else ():
            who = f" of {ranks_phrase(excluded.ranks)}" if excluded.ranks else ""
            self.labelled("ruled out", f"{excluded.cause}{who}: {excluded.because}")
        for wanted in verdict.collect if self.verbose else verdict.collect[:_COLLECT]:
            if not _says(verdict.explanation, wanted.text) and not _says(
                " ".join(verdict.advice), wanted.text
            ):
                self.labelled("next", wanted.text)

    def fact(self, label: str, fact: Evidence) -> None:
        self.labelled(label, fact.text + (f"  [{fact.at}]" if fact.at else ""))

    def warnings(self) -> None:
        warnings = self.document.warnings
        for item in warnings if self.verbose else warnings[:_WARNINGS]:
            at = f"{item.file}: " if item.file else ""
            self.labelled("warning", f"{at}{item.message}" + (f" ({item.hint})" if item.hint else ""))
        if len(warnings) > _WARNINGS and not self.verbose:
            self.labelled("warning", f"{len(warnings) - _WARNINGS} more; -v shows them")

    def labelled(self, label: str, text: str) -> None:
        style = {"help": "ok", "warning": "warning", "against": "warning", "why": "bold"}.get(label, "label")
        self.put(f"   {self.paint('=', 'dim')} {self.paint(label + ':', style)} {text}", indent="       ")

    def put(self, text: str, *, indent: str) -> None:
        painted = len(text) - len(_plain(text))
        wrapped = textwrap.wrap(
            text,
            self.width + painted,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=True,
        )
        if wrapped and text.startswith(" "):
            lead = text[: len(text) - len(text.lstrip(" "))]
            wrapped[0] = lead + wrapped[0].lstrip(" ")
        self.lines += wrapped

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self.color else text


def _says(whole: str, part: str) -> bool:
    """Return whether a text holds another one, whatever the case of its first letter."""
    return part.rstrip(".").lower() in whole.lower()


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)
