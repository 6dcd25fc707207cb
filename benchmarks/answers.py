"""What the analyzer answered on an incident, beside its truth, and how such answers are counted."""

from __future__ import annotations

import math
import tempfile
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import hangscope
from tests.in_thread import InThisThread
from tests.simulator import Kept, Remains, Truth

WORDS = ("high", "medium", "low", None)


@dataclass(frozen=True, slots=True)
class Answer:
    """One incident's answer beside its truth. `cause`, `confidence` and `ranks` are the analyzer's.

    `way`: how its files were collected; `innocent`: the ranks that it names and that are in no right answer;
    `false_alarm`: whether it says that a job froze which did not; `told`: whether what was collected
    distinguishes the culprits.
    """

    fault: str
    seed: int
    way: str
    ranks_exact: bool
    cause_exact: bool
    cause_listed: bool
    ranks: tuple[int, ...]
    innocent: tuple[int, ...]
    cause: str | None
    confidence: str | None
    status: str
    wanted: str
    false_alarm: bool
    told: bool

    @property
    def right(self) -> bool:
        """Whether both the ranks and the cause are right."""
        return self.ranks_exact and self.cause_exact

    @property
    def holds(self) -> bool:
        """Whether what is claimed is right: ranks and cause, or, where nothing tells the culprits apart, the cause and nobody."""
        return self.right or (not self.told and not self.ranks and self.cause_exact)

    @property
    def kind(self) -> str:
        """Return right, part (some of the culprits), silent (nobody named) or wrong, by the ranks alone."""
        if self.ranks_exact:
            return "right"
        if self.innocent or self.false_alarm:
            return "wrong"
        return "part" if self.ranks else "silent"

    def __str__(self) -> str:
        said = f"{list(self.ranks)} {self.cause} ({self.confidence}), {self.status}"
        return f"{self.kind.upper()} {self.fault}-{self.seed} [{self.way}]: {said}; wanted {self.wanted}"


def answer(left: Remains, kept: Kept, way: str, folder: Path | None = None) -> Answer:
    """Write what was kept of an incident (to `folder`, else for a moment), analyze it and compare."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="hangscope-score-") as scratch:
            return answer(left, kept, way, Path(scratch))
    left.write(folder, kept)
    return compare(str(folder), left.truth(kept), left.incident.seed, way, told=left.tells(kept))


def compare(path: str | list[str], truth: Truth, seed: int, way: str, *, told: bool = True) -> Answer:
    """Analyze a folder, or several, and compare what is said with the truth."""
    ranks: tuple[int, ...] = ()
    cause = confidence = None
    listed: list[str] = []
    try:
        report = hangscope.analyze(path, executor=InThisThread())
        status = report.status
        verdict = report.verdict
        if verdict is not None:
            ranks, cause, confidence = tuple(sorted(verdict.culprit_ranks)), verdict.cause, verdict.confidence
            listed = [verdict.cause, *(alternative.cause for alternative in verdict.alternatives)]
    except hangscope.HangscopeError as error:
        status = type(error).__name__
    except Exception:  # the table has to be finished; what broke is shown as the status
        status = traceback.format_exc(limit=-2).strip().replace("\n", " | ")
    answers = truth.answers if truth.answers is not None else [truth.culprits]
    calm = truth.status in ("no_hang", "inconclusive") and truth.allows(status)
    return Answer(
        truth.kind,
        seed,
        way,
        ranks_exact=list(ranks) in [sorted(right) for right in answers] and truth.allows(status),
        cause_exact=cause in truth.accept or (calm and not truth.accept),
        cause_listed=any(name in truth.accept for name in listed) or (calm and not truth.accept),
        ranks=ranks,
        innocent=tuple(rank for rank in ranks if all(rank not in right for right in answers)),
        cause=cause,
        confidence=confidence,
        status=status,
        wanted=f"{sorted(truth.culprits)} {'/'.join(truth.accept) or truth.status}",
        false_alarm=truth.status in ("no_hang", "inconclusive") and status == "hang",
        told=told,
    )


def reliability(answers: Sequence[Answer], word: str | None) -> str:
    """Return "n, share whose claim holds, lower 95% bound" of the answers with a confidence word, as cells of a table."""
    rows = [a for a in answers if a.confidence == word]
    if not rows:
        return "0 |  | "
    right = sum(a.holds for a in rows)
    return f"{len(rows)} | {right / len(rows):.1%} | {lower_bound(right, len(rows)):.1%}"


def share(flags: Iterable[bool]) -> str:
    """Return the share of true values in whole percent; 100% only where all are."""
    values = list(flags)
    if not values:
        return ""
    text = f"{sum(values) / len(values):.0%}"
    return text if text != "100%" or all(values) else f"{sum(values) / len(values):.1%}"


def lower_bound(right: int, n: int, level: float = 0.95) -> float:
    """Return the one-sided Clopper-Pearson lower bound of a share, by bisection on the binomial tail."""
    if right == 0 or n == 0:
        return 0.0
    low, high = 0.0, right / n
    for _ in range(60):
        middle = (low + high) / 2
        tail = sum(_binomial(n, k, middle) for k in range(right, n + 1))
        low, high = (middle, high) if tail < 1 - level else (low, middle)
    return low


def _binomial(n: int, k: int, share: float) -> float:
    choose = math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
    return math.exp(choose + k * math.log(share) + (n - k) * math.log1p(-share))
