"""Print how far the confidence words can be trusted: `python benchmarks/calibrate.py [--per-fault 2]`.

One table each for incidents with full data, for lossy ones (every other way of collecting), for logs alone, and for
real jobs of frameworks, where those lie beside the checkout. A word is right when ranks and cause are, or the cause with
nobody named where nothing tells who it was. What a word promises is in `PROMISE`; it is claimed of a kind of incident
from `CLAIMED_FROM` verdicts on, whose lower bound is printed too.

Seeds below `PRINTED_FROM` are for setting weights (README's score starts at 0); this program prints from later ones.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(_ROOT))

from answers import WORDS, Answer, answer, compare, reliability  # noqa: E402

from tests.simulator import FAULTS, WAYS, Remains, Truth, collect, simulate  # noqa: E402

PRINTED_FROM = 5000
PROMISE = {"high": 0.95, "medium": 0.75}
CLAIMED_FROM = 60
FRAMEWORKS = _ROOT.parent / "shared" / "incidents" / "frameworks"

#: what is analyzed of a framework's job: label -> folders
INPUTS = {
    "dumps": ("dumps",),
    "logs": ("logs",),
    "both": ("dumps", "logs"),
    "stacks too": ("dumps", "logs", "stacks"),
    "logs detail": ("logs_detail",),
}


def simulated(faults: list[str], seeds: range, ways: list[str]) -> Iterator[Answer]:
    """Yield the answers on simulated incidents: each job is run once and collected in every way."""
    for fault in faults:
        for seed in seeds:
            left = Remains(simulate(fault, seed))
            for way in ways:
                yield answer(left, collect(left, way), way)


def framework_jobs(top: Path) -> Iterator[Answer]:
    """Yield the answers on the jobs in a folder, each on dumps, logs, both, and with stacks, as far as they are there."""
    for file in sorted(top.glob("*/truth.json")):
        told = json.loads(file.read_text())
        healthy = told["kind"] == "healthy"
        truth = Truth(
            file.parent.name,
            [] if healthy else told["accept_causes"],
            told["culprits"],
            told.get("answers"),
            "no_hang" if healthy else told.get("status"),
        )
        for label, folders in INPUTS.items():
            paths = [file.parent / folder for folder in folders]
            usable = all(path.is_dir() and any(path.iterdir()) for path in paths)
            if usable and label not in told.get("skip_inputs", ()):
                yield compare([str(path) for path in paths], truth, 0, label)


def table(title: str, answers: list[Answer]) -> str:
    """Return one row per confidence word, as Markdown."""
    lines = [
        f"**{title}** ({len(answers)} incidents)",
        "",
        "| confidence | n | right (ranks and cause) | lower 95% bound | names an innocent | promise |",
        "| --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for word in WORDS:
        rows = [one for one in answers if one.confidence == word]
        if rows:
            wrong = sum(bool(one.innocent) for one in rows)
            cells = [word or "no verdict", reliability(answers, word), str(wrong), _kept(word, rows)]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _kept(word: str | None, rows: list[Answer]) -> str:
    if word not in PROMISE:
        return ""
    share = sum(one.holds for one in rows) / len(rows)
    kept = "kept" if share >= PROMISE[word] else f"broken: {PROMISE[word]:.0%} is promised"
    return kept if len(rows) >= CLAIMED_FROM else f"{kept} (of {len(rows)}, too few to claim)"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--per-fault", type=int, default=2, help="jobs per fault (default 2)")
    parser.add_argument("--seed-from", type=int, default=PRINTED_FROM, help="the first seed")
    parser.add_argument(
        "--frameworks", type=Path, default=FRAMEWORKS, help="a folder of real jobs with truths"
    )
    parser.add_argument("--verbose", action="store_true", help="list what is wrong")
    options = parser.parse_args()
    seeds = range(options.seed_from, options.seed_from + options.per_fault)
    answers = list(simulated(list(FAULTS), seeds, list(WAYS)))
    kinds = {
        "full data": [one for one in answers if one.way == "full"],
        "lossy": [one for one in answers if one.way not in ("full", "logs only")],
        "logs only": [one for one in answers if one.way == "logs only"],
    }
    if options.frameworks.is_dir():
        kinds["jobs of frameworks"] = list(framework_jobs(options.frameworks))
    else:
        print(f"no jobs of frameworks at {options.frameworks}", file=sys.stderr)
    for title, of in kinds.items():
        print(table(title, of), end="\n\n")
        if options.verbose:
            print("".join(f"{one}\n" for one in of if not one.right))
    return 0


if __name__ == "__main__":
    sys.exit(main())
