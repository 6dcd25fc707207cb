"""What is right about one incident of the corpus: its truth, an answer, and how the two compare."""

from __future__ import annotations

import json
import re
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hangscope
from tests.in_thread import InThisThread

#: Which folders of an incident are analyzed together. An incident with dumps alone is asked once.
INPUTS = {
    "dumps": ("dumps",),
    "logs": ("logs",),
    "both": ("dumps", "logs"),
    "stacks too": ("dumps", "logs", "stacks"),
    "logs detail": ("logs_detail",),
}
#: What no excerpt of text can show; a truth's `may_claim` allows it.
UNSUPPORTED = re.compile(
    r"every member joined|all (ranks|members) (joined|entered)|nothing above the transport|no bug of the job"
    r"|\b0 ranks\b|address \?"
)


@dataclass(frozen=True, slots=True)
class Given:
    """One answer: global ranks, cause, confidence, suspects, the culprit's line, and the share of facts it states."""

    status: str
    ranks: tuple[int, ...] = ()
    cause: str | None = None
    confidence: str | None = None
    suspects: tuple[int, ...] = ()
    line: tuple[str, int] | None = None
    stated: float | None = None
    unsupported: bool = False


@dataclass(frozen=True, slots=True)
class Truth:
    """What happened in one incident, and which answers are right."""

    kind: str
    answers: tuple[tuple[int, ...], ...]
    causes: tuple[str, ...]
    statuses: tuple[str, ...]
    lines: frozenset[tuple[str, int]] = frozenset()
    must_say: tuple[str, ...] = ()
    must_not_name: frozenset[int] = frozenset()
    may_claim: bool = False
    line_inputs: tuple[str, ...] = ()
    skip_inputs: tuple[str, ...] = ()

    @classmethod
    def read(cls, path: Path) -> Truth:
        """Return the truth in a file."""
        row = json.loads(path.read_text())
        status = row.get("status", "no_hang" if row["kind"] == "healthy" else "hang")
        return cls(
            row["kind"],
            tuple(tuple(sorted(ranks)) for ranks in row.get("answers") or [row.get("culprits", [])]),
            tuple(row["accept_causes"]),
            tuple(row.get("accept_status") or [status]),
            frozenset((Path(file).name, line) for file, line in row.get("culprit_lines", [])),
            tuple(row.get("must_say", ())),
            frozenset(row.get("must_not_name", ())),
            bool(row.get("may_claim")),
            tuple(row.get("line_inputs", ())),
            tuple(row.get("skip_inputs", ())),
        )

    @property
    def culprits(self) -> frozenset[int]:
        """Return the ranks that some right answer names."""
        return frozenset(rank for ranks in self.answers for rank in ranks)


@dataclass(frozen=True, slots=True)
class Mark:
    """How one answer compares with the truth. None: the incident does not ask that question."""

    ranks: bool
    cause: bool
    innocent: bool
    line: bool | None
    suspects: bool | None
    helpful: bool | None
    confidence: str | None

    @property
    def right(self) -> bool:
        """Whether ranks and cause are both right."""
        return self.ranks and self.cause


def mark(truth: Truth, given: Given, asked: str) -> Mark:
    """Compare an answer with the truth."""
    calm = given.status in ("no_hang", "inconclusive") and given.status in truth.statuses
    ranks, cause = given.ranks in truth.answers, given.cause in truth.causes
    if truth.must_say:  # an empty shrug at pasted text is no answer
        shrug = given.status == "inconclusive" and "hang" in truth.statuses and (given.stated or 0) < 0.5
        ranks = ranks and given.status in truth.statuses and not shrug
        cause = cause or (calm and given.cause is None)
    elif truth.kind in ("healthy", "slow") or (given.cause is None and "no_hang" in truth.statuses):
        cause = cause or given.status == "no_hang"
    named = any(truth.answers) or truth.must_not_name
    innocent = bool(set(given.ranks) - truth.culprits) and bool(named)
    helpful = None
    if truth.must_say:
        helpful = ranks and cause and (given.stated or 0) >= 0.66 and not given.unsupported
    suspects = None
    if given.ranks not in truth.answers and truth.culprits:
        suspects = any(ranks and set(ranks) <= set(given.suspects) for ranks in truth.answers)
    line = given.line in truth.lines if asked in truth.line_inputs and truth.lines else None
    return Mark(ranks, cause, innocent, line, suspects, helpful, given.confidence)


def ask(paths: Sequence[str], truth: Truth) -> tuple[Given, list[str]]:
    """Analyze an incident and return what was answered, and what contradicts itself in the report.

    A broken analysis is an answer too: its status says how.
    """
    # not above: it imports the core, of which `ablate.py` replaces modules first
    from tests.report.consistency import contradictions

    try:
        report = hangscope.analyze(list(paths), executor=InThisThread())
    except hangscope.HangscopeError as error:
        return Given(type(error).__name__), []
    except Exception:  # the table has to be finished
        return Given(traceback.format_exc(limit=-2).strip().replace("\n", " | ")), []
    return _given(report, truth), contradictions(report)


def _given(report: hangscope.Report, truth: Truth) -> Given:
    document = json.loads(report.to_json())
    verdict = document.get("verdict") or {}
    place = verdict.get("location") or {}
    stated = None
    if truth.must_say:
        words = own_words(document, verdict)
        stated = sum(says(words, wanted) for wanted in truth.must_say) / len(truth.must_say)
    return Given(
        document["status"],
        tuple(sorted(verdict.get("culprit_ranks") or ())),
        verdict.get("cause"),
        verdict.get("confidence"),
        tuple(sorted(verdict.get("suspect_ranks") or ())),
        (Path(place["file"]).name, place["line"]) if place.get("file") else None,
        stated,
        bool(truth.must_say and not truth.may_claim and UNSUPPORTED.search(flat(report.to_text()))),
    )


def flat(text: str) -> str:
    """Return a text in lower case with single blanks, and without commas in numbers."""
    return re.sub(r"\s+", " ", re.sub(r"(?<=\d),(?=\d{3})", "", text)).lower()


def own_words(document: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    """Return what a report says itself, without the lines it quotes."""
    parts = [
        document.get("headline"),
        *(verdict.get(key) for key in ("title", "summary", "explanation")),
        *(verdict.get("advice") or ()),
        *(document.get("missing") or ()),
        *(document.get("confidence_why") or ()),
        *(json.dumps(document.get(key) or []) for key in ("hypotheses", "collect")),
        *(json.dumps(verdict.get(key) or []) for key in ("suspect_ranks", "collect")),
        json.dumps([culprit.get("ranks") for culprit in verdict.get("culprits") or ()]),
    ]
    return flat(" ".join(str(part) for part in parts if part))


def says(text: str, wanted: str) -> bool:
    """Whether a text holds one of the alternatives `a|b`; a number has to stand alone. What begins with `re:` is a pattern."""
    if wanted.startswith("re:"):
        return re.search(wanted[3:], text, re.IGNORECASE) is not None
    for words in wanted.lower().split("|"):
        pattern = re.escape(words)
        if re.search(rf"(?<!\d){pattern}(?!\d)" if words.isdigit() else pattern, text):
            return True
    return False
