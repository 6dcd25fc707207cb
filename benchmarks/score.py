"""Print how often the analyzer is right on simulated freezes: `python benchmarks/score.py [--per-fault 50]`.

`--corpus [SET]` asks the corpus of `fixtures/corpus/` instead and says what got worse since its answers were last kept
(`corpus.py`). With `--text` the excerpts under `fixtures/text/` are scored instead, by form (`text_score.py`).

Every incident follows from its fault and seed: the tables are the same on every run. An incident is right when
the culprit ranks are exact (and the status, where the truth says one) and the cause is an accepted one.
`--collected` asks how answers hold when files are lost, late or cut: one row per way of collecting, every
fault in each. Where a rank's traces are gone the right answer is to name nobody: *silent* is counted apart
from *wrong*, which is an innocent named, or a freeze said of a job that did not freeze.
"""

from __future__ import annotations

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import corpus
import text_score
from answers import WORDS, Answer, answer, reliability, share

from tests.simulator import FAULTS, WAYS, Remains, collect, simulate


@dataclass(frozen=True, slots=True)
class Task:
    """What one worker does: run one job, and analyze it as collected in some ways. `keep`: a folder for misses."""

    fault: str
    seed: int
    ways: tuple[str, ...]
    world_size: int | None
    layout: str | None
    keep: str | None


def score(task: Task) -> list[Answer]:
    """Simulate one job once, collect it in each way, analyze and compare."""
    left = Remains(simulate(task.fault, task.seed, world_size=task.world_size, layout=task.layout))
    answers = []
    for way in task.ways:
        kept = collect(left, way)
        answers.append(answer(left, kept, way))
        if task.keep and not answers[-1].right:
            target = Path(task.keep) / f"{task.fault}-{task.seed}-{way.replace(' ', '_')}"
            if not target.exists():
                target.mkdir(parents=True)
                left.write(target, kept)
    return answers


def fault_table(answers: list[Answer]) -> str:
    """Return one row per fault, and the reliability of the confidence words, as Markdown."""
    lines = [
        "| fault | n | ranks exact | cause exact | cause in list | high |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for fault in [*FAULTS, "all"]:
        rows = [a for a in answers if fault in (a.fault, "all")]
        if rows:
            shares = [
                share(a.ranks_exact for a in rows),
                share(a.cause_exact for a in rows),
                share(a.cause_listed for a in rows),
                share(a.confidence == "high" for a in rows),
            ]
            lines.append(f"| {' | '.join([fault, str(len(rows)), *shares])} |")
    lines += [
        "",
        "| confidence | n | right (ranks and cause) | lower 95% bound |",
        "| --- | ---: | ---: | ---: |",
    ]
    present = {a.confidence for a in answers}
    lines += [
        f"| {word or 'no verdict'} | {reliability(answers, word)} |" for word in WORDS if word in present
    ]
    return "\n".join(lines)


def way_table(answers: list[Answer]) -> str:
    """Return one row per way of collecting, as Markdown."""
    lines = [
        "| collected | n | ranks | told: n | ranks | cause | part | silent | wrong | wrong name at high | at medium"
        " | high: n | right | ≥ | medium: n | right | ≥ |",
        f"| --- |{' ---: |' * 16}",
    ]
    for way in WAYS:
        rows = [a for a in answers if a.way == way]
        if rows:
            told = [a for a in rows if a.told]
            cells = [
                way,
                str(len(rows)),
                share(a.ranks_exact for a in rows),
                str(len(told)),
                share(a.ranks_exact for a in told),
                share(a.cause_exact for a in rows),
                *(share(a.kind == kind for a in rows) for kind in ("part", "silent", "wrong")),
                *(
                    str(sum(bool(a.innocent) and a.confidence == word for a in rows))
                    for word in ("high", "medium")
                ),
                *(reliability(rows, word) for word in ("high", "medium")),
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--per-fault", type=int, default=50, help="incidents per fault (default 50)")
    parser.add_argument(
        "--only", action="append", choices=list(FAULTS), help="this fault only; may be given several times"
    )
    parser.add_argument("--seed-from", type=int, default=0, help="the first seed")
    parser.add_argument("--collected", action="store_true", help="one row per way of collecting")
    parser.add_argument(
        "--rows",
        action="append",
        metavar="WAY",
        help="this way of collecting only (its beginning is enough); may be given several times",
    )
    parser.add_argument(
        "--ranks", type=int, help="the number of ranks, a multiple of 8 (default: drawn, 8 to 64)"
    )
    parser.add_argument("--layout", help="the layout (default: drawn)")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--keep", help="a folder for the incidents that were missed")
    parser.add_argument("--verbose", action="store_true", help="list the misses")
    parser.add_argument("--min-ranks", type=float, default=0.0, help="fail below this share of exact ranks")
    parser.add_argument("--min-cause", type=float, default=0.0, help="fail below this share of exact causes")
    parser.add_argument(
        "--corpus", nargs="*", metavar="SET", help="ask these sets of the corpus, or all of them"
    )
    parser.add_argument("--every", type=int, default=1, help="ask one question of the corpus in so many")
    parser.add_argument(
        "--update", action="store_true", help="keep the answers to the corpus as the last ones"
    )
    parser.add_argument("--text", action="store_true", help="score the excerpts of fixtures/text instead")
    parser.add_argument("--text-only", metavar="WHICH", help="open, apart, or a part of an excerpt's name")
    options = parser.parse_args()
    if options.corpus is not None:
        wanted = {"every": options.every, "update": options.update, "verbose": options.verbose}
        return corpus.run(options.corpus, options.jobs, **wanted)
    if options.text or options.text_only:
        answers, shown = text_score.run(options.verbose, options.text_only)
        print(shown)
        useful = sum(answer.useful for answer in answers) / max(1, len(answers))
        return 0 if useful >= options.min_cause and not any(answer.wrong for answer in answers) else 1
    wanted = tuple(options.rows or ())
    ways = tuple(way for way in WAYS if way.startswith(wanted)) if wanted else tuple(WAYS)
    if not ways:
        parser.error(f"no way of collecting begins so; choose from: {'; '.join(WAYS)}")
    if not options.collected and not wanted:
        ways = ("full",)
    tasks = [
        Task(fault, seed, ways, options.ranks, options.layout, options.keep)
        for fault in (options.only or FAULTS)
        for seed in range(options.seed_from, options.seed_from + options.per_fault)
    ]
    began = time.perf_counter()
    if options.jobs > 1:
        with ProcessPoolExecutor(options.jobs) as pool:
            results = list(pool.map(score, tasks, chunksize=4))
    else:
        results = [score(task) for task in tasks]
    answers = [one for result in results for one in result]
    if options.verbose:
        print("".join(f"{one}\n" for one in answers if not one.right))
    print(way_table(answers) if options.collected else fault_table(answers))
    print(f"\n{len(answers)} answers in {time.perf_counter() - began:.0f} s", file=sys.stderr)
    ranks = sum(a.ranks_exact for a in answers) / max(1, len(answers))
    cause = sum(a.cause_exact for a in answers) / max(1, len(answers))
    return 0 if ranks >= options.min_ranks and cause >= options.min_cause else 1


if __name__ == "__main__":
    sys.exit(main())
