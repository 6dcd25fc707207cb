"""Readers with the brief against readers with the folder: what each of them answers, and how long it takes.

    python benchmarks/briefs.py write OUT --key KEY.json       # OUT/brief/NAME/brief.md and OUT/folder/NAME/...
    python benchmarks/briefs.py score --key KEY.json brief=ANSWERS.json folder=ANSWERS.json

Twenty incidents of the corpus that hangscope had not seen when it first answered them, under neutral names. A reader gets one of
the two folders and the questions of QUESTIONS.md; KEY.json, which no reader gets, says which incident each name stands for.
ANSWERS.json is a list of {"name", "ranks", "cause", "confidence", "suspects", "seconds"}.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from corpus import CORPUS  # noqa: E402
from corpus_answers import Given, Truth, mark  # noqa: E402

import hangscope  # noqa: E402
from hangscope.knowledge.catalog import CATALOG  # noqa: E402

CHOSEN = {"partial1": 7, "real1": 6, "pastes1": 4, "frameworks2": 3}
KINDS = ("dumps", "logs", "stacks")


def unpacked(scratch: Path, name: str) -> Path:
    """Unpack a set of the corpus, and return its folder."""
    with tarfile.open(CORPUS / f"{name}.tar.xz") as archive:
        archive.extractall(scratch / name, filter="data")
    return scratch / name


def write(out: Path, key: Path, seed: int) -> None:
    """Write the brief and the files of each chosen incident under one neutral name, and the key to these names."""
    choice, names = random.Random(seed), {}
    with tempfile.TemporaryDirectory(prefix="hangscope-briefs-") as scratch:
        chosen = []
        for name, number in CHOSEN.items():
            folder = unpacked(Path(scratch), name)
            chosen += choice.sample(sorted(p.parent for p in folder.glob("*/truth.json")), number)
        choice.shuffle(chosen)
        for number, incident in enumerate(chosen, 1):
            label = f"i{number:02}"
            names[label] = f"{incident.parent.name}/{incident.name}"
            files, brief = out / "folder" / label, out / "brief" / label
            for kind in KINDS:
                if (incident / kind).is_dir():
                    shutil.copytree(incident / kind, files / kind)
            report = hangscope.analyze(files)
            brief.mkdir(parents=True)
            (brief / "brief.md").write_text(report.to_brief())
    key.write_text(json.dumps(names, indent=1) + "\n")
    causes = ", ".join(CATALOG)
    (out / "QUESTIONS.md").write_text(
        "For each folder: which global ranks caused the hang (an empty list if nobody can be named), which cause of the list, how "
        "sure (high, medium, low), and which ranks you suspect if you are not sure. Write a JSON list of\n"
        '{"name": "i01", "ranks": [3], "cause": "...", "confidence": "high", "suspects": [], "seconds": 40}\n'
        f"with the seconds that each took.\n\nCauses: {causes}\n"
    )


def score(key: Path, answers: list[str]) -> None:
    """Print one row per reader."""
    names = json.loads(key.read_text())
    print("| reader with the | n | ranks | cause | both | high: right | median time |")
    print("| --- |" + " ---: |" * 6)
    with tempfile.TemporaryDirectory(prefix="hangscope-briefs-") as scratch:
        for name in CHOSEN:
            unpacked(Path(scratch), name)
        for given in answers:
            who, _, file = given.partition("=")
            rows: list[dict[str, Any]] = json.loads(Path(file).read_text())
            marks = []
            for row in rows:
                truth = Truth.read(Path(scratch) / names[row["name"]] / "truth.json")
                cause = row.get("cause") or None
                status = "no_hang" if cause in (None, "healthy", "no_hang") else "hang"
                given_ = Given(status, tuple(sorted(row["ranks"])), cause, row.get("confidence"), stated=1.0)
                marks.append((mark(truth, given_, "both"), float(row.get("seconds") or 0)))
            high = [m.right for m, _ in marks if m.confidence == "high"]
            cells = [
                who, len(marks), sum(m.ranks for m, _ in marks), sum(m.cause for m, _ in marks), sum(m.right for m, _ in marks),
                f"{sum(high)} of {len(high)}", f"{median(s for _, s in marks):.0f} s",
            ]  # fmt: skip
            print(f"| {' | '.join(map(str, cells))} |")


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    writing = commands.add_parser("write")
    writing.add_argument("out", type=Path)
    writing.add_argument("--seed", type=int, default=35)
    scoring = commands.add_parser("score")
    scoring.add_argument("answers", nargs="+", metavar="READER=ANSWERS.json")
    for one in (writing, scoring):
        one.add_argument("--key", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "write":
        write(options.out, options.key, options.seed)
    else:
        score(options.key, options.answers)


if __name__ == "__main__":
    main()
