"""Print how often the analyzer is right on simulated freezes: `python benchmarks/score.py [--per-fault 50]`.

With `--text` the excerpts under `fixtures/text/` are scored instead, by form (`text_score.py`).

Every incident follows from its fault and seed: the table is the same on every run. An incident is right when
the culprit ranks are exact (and the status, where the truth says one) and the cause is an accepted one.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(_ROOT), str(_ROOT / "tests"), str(_ROOT / "benchmarks")]

import text_score  # noqa: E402
from simulator import FAULTS, Truth, write_incident  # noqa: E402


@dataclass(frozen=True, slots=True)
class Score:
    """One incident's answer beside its truth. `cause`, `confidence` and `ranks` are the analyzer's."""

    fault: str
    seed: int
    ranks_exact: bool
    cause_exact: bool
    cause_listed: bool
    ranks: tuple[int, ...]
    cause: str | None
    confidence: str | None
    status: str
    wanted: str
    seconds: float

    @property
    def right(self) -> bool:
        """Whether both the ranks and the cause are right."""
        return self.ranks_exact and self.cause_exact


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker does: write one incident and analyze it. `keep`: the folder for misses, or None."""

    fault: str
    seed: int
    lossy: bool
    world_size: int | None
    layout: str | None
    keep: str | None


def score(task: Task) -> Score:
    """Write one incident, analyze it and compare."""
    with tempfile.TemporaryDirectory(prefix="hangscope-score-") as scratch:
        folder = Path(scratch) / "incident"
        truth = write_incident(
            folder, task.fault, task.seed, lossy=task.lossy, world_size=task.world_size, layout=task.layout
        )
        result = _compare(task, truth, folder / "dumps")
        if task.keep and not result.right:
            target = Path(task.keep) / f"{task.fault}-{task.seed}"
            target.parent.mkdir(parents=True, exist_ok=True)
            if not target.exists():
                folder.rename(target) if _same_device(folder, target.parent) else _copy(folder, target)
        return result


def _compare(task: Task, truth: Truth, dumps: Path) -> Score:
    import hangscope

    began = time.perf_counter()
    ranks: tuple[int, ...] = ()
    cause = confidence = None
    listed: list[str] = []
    try:
        report = hangscope.analyze(str(dumps))
        status = report.status
        verdict = report.verdict
        if verdict is not None:
            ranks, cause, confidence = tuple(sorted(verdict.culprit_ranks)), verdict.cause, verdict.confidence
            listed = [verdict.cause, *(alternative.cause for alternative in verdict.alternatives)]
    except hangscope.HangscopeError as error:
        status = f"{type(error).__name__}: {error}"
    except Exception:  # the table has to be finished; what broke is shown as the status
        status = traceback.format_exc(limit=-2).strip().replace("\n", " | ")
    answers = truth.answers if truth.answers is not None else [truth.culprits]
    calm = truth.status == "no_hang" == status
    return Score(
        task.fault,
        task.seed,
        ranks_exact=list(ranks) in [sorted(answer) for answer in answers] and truth.status in (None, status),
        cause_exact=cause in truth.accept or (calm and not truth.accept),
        cause_listed=any(name in truth.accept for name in listed) or (calm and not truth.accept),
        ranks=ranks,
        cause=cause,
        confidence=confidence,
        status=status,
        wanted=f"{sorted(truth.culprits)} {'/'.join(truth.accept) or truth.status}",
        seconds=time.perf_counter() - began,
    )


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


def table(scores: list[Score]) -> str:
    """Return the score table as Markdown."""
    lines = [
        "| fault | n | ranks exact | cause exact | cause in list | high |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fault in [*FAULTS, "all"]:
        rows = [s for s in scores if fault in (s.fault, "all")]
        if rows:
            shares = [
                _share(s.ranks_exact for s in rows),
                _share(s.cause_exact for s in rows),
                _share(s.cause_listed for s in rows),
                _share(s.confidence == "high" for s in rows),
            ]
            lines.append(f"| {' | '.join([fault, str(len(rows)), *shares])} |")
    lines += [
        "",
        "| confidence | n | right (ranks and cause) | lower 95% bound |",
        "| --- | ---: | ---: | ---: |",
    ]
    for word in ("high", "medium", "low", None):
        rows = [s for s in scores if s.confidence == word]
        if rows:
            right = sum(s.right for s in rows)
            shares = [f"{right / len(rows):.1%}", f"{lower_bound(right, len(rows)):.1%}"]
            lines.append(f"| {' | '.join([word or 'no verdict', str(len(rows)), *shares])} |")
    return "\n".join(lines)


def _share(flags: Iterable[bool]) -> str:
    values = list(flags)
    share = f"{sum(values) / len(values):.0%}"
    return share if share != "100%" or all(values) else f"{sum(values) / len(values):.1%}"


def _same_device(one: Path, other: Path) -> bool:
    return one.stat().st_dev == other.stat().st_dev


def _copy(folder: Path, target: Path) -> None:
    import shutil

    shutil.copytree(folder, target)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--per-fault", type=int, default=50, help="incidents per fault (default 50)")
    parser.add_argument(
        "--only", action="append", choices=list(FAULTS), help="this fault only; may be given several times"
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--lossy", action="store_true", help="lose dumps and logs, take some dumps early")
    parser.add_argument(
        "--ranks", type=int, help="the number of ranks, a multiple of 8 (default: drawn, 8 to 64)"
    )
    parser.add_argument("--layout", help="the layout (default: drawn)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--keep", help="a folder for the incidents that were missed")
    parser.add_argument("--verbose", action="store_true", help="list the misses")
    parser.add_argument("--min-ranks", type=float, default=0.0, help="fail below this share of exact ranks")
    parser.add_argument("--min-cause", type=float, default=0.0, help="fail below this share of exact causes")
    parser.add_argument("--text", action="store_true", help="score the excerpts of fixtures/text instead")
    parser.add_argument("--text-only", metavar="WHICH", help="open, apart, or a part of an excerpt's name")
    options = parser.parse_args()
    if options.text or options.text_only:
        answers, shown = text_score.run(options.verbose, options.text_only)
        print(shown)
        useful = sum(answer.useful for answer in answers) / max(1, len(answers))
        return 0 if useful >= options.min_cause and not any(answer.wrong for answer in answers) else 1
    tasks = [
        Task(fault, seed, options.lossy, options.ranks, options.layout, options.keep)
        for fault in (options.only or FAULTS)
        for seed in range(options.seed, options.seed + options.per_fault)
    ]
    began = time.perf_counter()
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs) as pool:
            scores = list(pool.map(score, tasks, chunksize=4))
    else:
        scores = [score(task) for task in tasks]
    for row in scores:
        if options.verbose and not row.right:
            answer = f"{list(row.ranks)} {row.cause} ({row.confidence}), {row.status}"
            print(f"MISS {row.fault}-{row.seed}: {answer}; wanted {row.wanted}")
    print(table(scores))
    spent = time.perf_counter() - began
    inside = sum(s.seconds for s in scores)
    print(f"\n{len(scores)} incidents in {spent:.0f} s, {inside:.0f} s of it in analyze", file=sys.stderr)
    ranks = sum(s.ranks_exact for s in scores) / max(1, len(scores))
    cause = sum(s.cause_exact for s in scores) / max(1, len(scores))
    return 0 if ranks >= options.min_ranks and cause >= options.min_cause else 1


if __name__ == "__main__":
    sys.exit(main())
