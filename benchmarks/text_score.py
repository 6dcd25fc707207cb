"""How useful the answers are on excerpts as people paste them: `python benchmarks/score.py --text`.

Each excerpt under `fixtures/text/` has a truth that states only what the text proves. An answer is *useful* when its
status, its ranks and its cause are all acceptable, and *wrong* when it names a rank that no acceptable answer names.
"""

from __future__ import annotations

import json
import tempfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "fixtures" / "text"


@dataclass(frozen=True, slots=True)
class Excerpt:
    """One excerpt with its truth. `apart`: it was not run while the parsers were written.

    `ranks` are the acceptable answers (global ranks), `causes` the acceptable ones; None is no verdict.
    """

    name: str
    form: str
    apart: bool
    status: tuple[str, ...]
    ranks: tuple[tuple[int, ...], ...]
    causes: tuple[str | None, ...]

    @property
    def path(self) -> Path:
        """Return the file, or the folder of an excerpt of several files."""
        folder = FOLDER / self.name
        return folder if folder.is_dir() else FOLDER / f"{self.name}.txt"


@dataclass(frozen=True, slots=True)
class Answer:
    """What the analyzer said of one excerpt."""

    excerpt: Excerpt
    status: str
    ranks: tuple[int, ...]
    cause: str | None
    confidence: str | None

    @property
    def useful(self) -> bool:
        """Whether status, ranks and cause are all acceptable."""
        truth = self.excerpt
        return self.status in truth.status and self.ranks in truth.ranks and self.cause in truth.causes

    @property
    def wrong(self) -> bool:
        """Whether a rank is named that no acceptable answer names."""
        return bool(set(self.ranks) - {rank for answer in self.excerpt.ranks for rank in answer})

    def told(self) -> str:
        """Return one line: the answer beside its truth."""
        truth = self.excerpt
        mark = "WRONG" if self.wrong else "ok   " if self.useful else "miss "
        return (
            f"{mark} {truth.name}: {self.status} {list(self.ranks)} {self.cause} ({self.confidence}); wanted "
            f"{'/'.join(truth.status)} {' or '.join(str(list(a)) for a in truth.ranks)} "
            f"{'/'.join(cause or 'no verdict' for cause in truth.causes)}"
        )


def excerpts() -> list[Excerpt]:
    """Return the excerpts in the order of their names."""
    rows = json.loads((FOLDER / "truths.json").read_text())
    return [
        Excerpt(
            name,
            row["form"],
            row["apart"],
            tuple(row["status"]),
            tuple(tuple(answer) for answer in row["ranks"]),
            tuple(row["causes"]),
        )
        for name, row in sorted(rows.items())
    ]


def ask(excerpt: Excerpt) -> Answer:
    """Analyze one excerpt, copied to a neutral name so that nothing but the text can tell."""
    import hangscope

    with tempfile.TemporaryDirectory(prefix="hangscope-text-") as folder:
        path = excerpt.path
        if path.is_file():
            path = Path(folder) / "paste.txt"
            path.write_bytes(excerpt.path.read_bytes())
        try:
            report = hangscope.analyze(str(path), jobs=1)
        except hangscope.NoInputError:  # "nothing here is known to me" claims nothing either
            return Answer(excerpt, "inconclusive", (), None, None)
        except hangscope.HangscopeError as error:
            return Answer(excerpt, type(error).__name__, (), None, None)
        verdict = report.verdict
        if verdict is None or (report.status, verdict.cause) == ("inconclusive", "unknown"):  # no claim either
            return Answer(excerpt, report.status, (), None, None)
        named = tuple(sorted(verdict.culprit_ranks))
        return Answer(excerpt, report.status, named, verdict.cause, verdict.confidence)


def table(answers: Iterable[Answer]) -> str:
    """Return the score by form as Markdown."""
    by_form: dict[str, list[Answer]] = defaultdict(list)
    for answer in answers:
        by_form[answer.excerpt.form].append(answer)
        by_form["all"].append(answer)
        by_form["all, kept apart" if answer.excerpt.apart else "all, others"].append(answer)
    lines = ["| form | n | useful | wrong names |", "| --- | ---: | ---: | ---: |"]
    for form in sorted(by_form, key=lambda name: (name.startswith("all"), name)):
        rows = by_form[form]
        useful, wrong = sum(row.useful for row in rows), sum(row.wrong for row in rows)
        lines.append(f"| {form} | {len(rows)} | {useful / len(rows):.0%} | {wrong} |")
    return "\n".join(lines)


def run(verbose: bool, only: str | None = None) -> tuple[list[Answer], str]:
    """Return all answers and the table. `only`: `open` or `apart`, or a part of a name."""
    chosen = [
        excerpt
        for excerpt in excerpts()
        if only is None
        or (only == "apart" and excerpt.apart)
        or (only == "open" and not excerpt.apart)
        or (only not in ("apart", "open") and only in excerpt.name)
    ]
    answers = [ask(excerpt) for excerpt in chosen]
    if verbose:
        print("\n".join(answer.told() for answer in answers))
    return answers, table(answers)
