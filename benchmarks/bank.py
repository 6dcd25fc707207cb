"""The incidents on which the core is tried: what reading left of each, the right answer, and how an answer is graded.

A case enters the core as an `Incident`, read once; whoever tries a change of the core judges it again from there.
"""

from __future__ import annotations

import contextlib
import json
import random
import sys
import tarfile
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import corpus
import text_score
from corpus_answers import INPUTS, UNSUPPORTED, Given, Truth, flat, mark, own_words, says

Judge = Callable[[Any, list[Any]], Any]
SIMULATED_FROM = 7000  # the first seed of simulated cases, far from those of the score's tables
_WORDS = (None, "low", "medium", "high")


class _Enough(BaseException):
    """All that is wanted was read."""


@dataclass(frozen=True, slots=True)
class Grade:
    """What an answer is worth: what is right in it, the innocent ranks that it names, and how sure it claims to be."""

    ranks: bool
    cause: bool
    innocent: bool
    line: bool
    suspects: bool
    helpful: bool
    confidence: str | None

    def worse_than(self, other: Grade) -> str:
        """Return what was lost against another grade, in a few words, or an empty string."""
        asked = ("ranks", "cause", "line", "suspects", "helpful")
        lost = [name for name in asked if getattr(other, name) and not getattr(self, name)]
        if self.innocent and not other.innocent:
            lost.append("innocent")
        sure, before = _WORDS.index(self.confidence), _WORDS.index(other.confidence)
        right = self.ranks and self.cause
        if (right and sure < before) or (not right and sure > before and sure > 1):
            lost.append("confidence")
        return ", ".join(lost)


@dataclass(slots=True)
class Case:
    """One incident as it comes to the core. `job` is what cases of the same job share."""

    name: str
    job: str
    kind: str
    incidents: list[tuple[Any, list[Any]]]
    truth: Truth
    asked: str

    def grade(self, judge: Judge) -> tuple[Grade, Given | None, str]:
        """Return the grade of what `judge` answers, the answer, and all that is said, to compare."""
        from hangscope import analysis

        try:
            found = [judge(*one) for one in self.incidents]
            best = found[analysis.surest(found)]
            judgement = best.judgement
            given = self._given(best)
        except Exception as error:
            return Grade(False, False, True, False, False, False, "high"), None, repr(error)
        marked = mark(self.truth, given, self.asked)
        grade = Grade(
            marked.ranks, marked.cause, marked.innocent, marked.line is not False, marked.suspects is not False,
            marked.helpful is not False, marked.confidence,
        )  # fmt: skip
        return grade, given, repr(judgement)

    def _given(self, best: Any) -> Given:
        judgement = best.judgement
        verdict, stated, unsupported = judgement.verdict, None, False
        if self.truth.must_say:
            from hangscope.report.report import Report
            from hangscope.report.view import build_document

            report = Report(build_document(best, "0"), best)
            data = json.loads(report.to_json())
            words = own_words(data, data.get("verdict") or {})
            stated = sum(says(words, wanted) for wanted in self.truth.must_say) / len(self.truth.must_say)
            unsupported = not self.truth.may_claim and bool(UNSUPPORTED.search(flat(report.to_text())))
        if verdict is None:
            return Given(judgement.status, stated=stated, unsupported=unsupported)
        place = verdict.location
        return Given(
            judgement.status,
            tuple(sorted(verdict.culprit_ranks)),
            verdict.cause,
            verdict.confidence,
            tuple(sorted(verdict.suspect_ranks)),
            (Path(place.file).name, place.line) if place is not None else None,
            stated,
            unsupported,
        )


def judged(incident: Any, notes: list[Any]) -> Any:
    """Return the analysis of an incident as it was read."""
    from hangscope.analysis import analyse

    incident.notes[:] = notes
    return analyse(incident)


def read(paths: Sequence[str]) -> list[tuple[Any, list[Any]]]:
    """Return the incidents that files hold, as they come to the core, each with its notes."""
    import hangscope
    from hangscope import analysis
    from hangscope.report import view
    from tests.in_thread import InThisThread

    found, judge = [], analysis.analyse

    def keep(incident: Any, knowledge: Any = None) -> Any:
        found.append((incident, list(incident.notes)))
        return judge(incident, knowledge)

    def stop(*_: object, **__: object) -> None:
        raise _Enough

    with (
        mock.patch.object(analysis, "analyse", keep),
        mock.patch.object(view, "build_document", stop),
        contextlib.suppress(_Enough, hangscope.HangscopeError),
    ):
        hangscope.analyze(list(paths), executor=InThisThread())
    return found


def of_corpus(names: Sequence[str] = ()) -> Iterator[Case]:
    """Yield the questions of the corpus."""
    for one in corpus.sets(names):
        with tempfile.TemporaryDirectory(prefix="hangscope-bank-") as scratch:
            with tarfile.open(corpus.CORPUS / f"{one.name}.tar.xz") as archive:
                archive.extractall(scratch, filter="data")
            one.folder = Path(scratch)
            for key, incident, asked in one.questions():
                truth = Truth.read(incident / "truth.json")
                if asked not in truth.skip_inputs and (
                    read_ := read([f"{incident}/{folder}" for folder in INPUTS[asked]])
                ):
                    yield Case(
                        f"{one.name}/{key}", f"{one.name}/{incident.name}", one.name, read_, truth, asked
                    )


def of_excerpts() -> Iterator[Case]:
    """Yield the excerpts of `fixtures/text/`."""
    for excerpt in text_score.excerpts():
        causes = tuple(c for c in excerpt.causes if c is not None)
        truth = Truth("text", excerpt.ranks, causes, excerpt.status)
        if found := read([str(excerpt.path)]):
            yield Case(f"text/{excerpt.name}", f"text/{excerpt.name}", "excerpts", found, truth, "dumps")


def of_simulator(per_fault: int, ways: int, seed_from: int = SIMULATED_FROM) -> Iterator[Case]:
    """Yield simulated incidents: of every fault so many jobs, each in full and in so many ways of losing files, drawn."""
    from tests.simulator import FAULTS, WAYS, Remains, collect, simulate

    for fault in FAULTS:
        for seed in range(seed_from, seed_from + per_fault):
            left = Remains(simulate(fault, seed))
            drawn = random.Random(f"{fault} {seed}").sample(sorted(set(WAYS) - {"full"}), ways)
            for way in ("full", *drawn):
                kept = collect(left, way)
                with tempfile.TemporaryDirectory(prefix="hangscope-bank-") as scratch:
                    left.write(Path(scratch), kept)
                    found = read([scratch])
                if not found:
                    continue
                told = left.truth(kept)
                answers = told.answers if told.answers is not None else [told.culprits]
                statuses = tuple(s for s in ("hang", "no_hang", "inconclusive") if told.allows(s))
                truth = Truth(fault, tuple(tuple(sorted(a)) for a in answers), tuple(told.accept), statuses)
                yield Case(f"{fault}-{seed} [{way}]", f"{fault}-{seed}", "simulated", found, truth, "dumps")
