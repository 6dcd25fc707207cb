"""Readers with the brief against readers with the folder: what each of them answers, and how long it takes.

    python benchmarks/briefs.py write OUT --key KEY.json       # OUT/first/... and OUT/second/..., one for each of two readers
    python benchmarks/briefs.py score --key KEY.json OUT/first OUT/second

Twenty incidents of the corpus that hangscope had not seen when it first answered them, under neutral names. Each reader gets the brief
of one half of them and the files of the other half, in one random order, so that a fast reader does not decide the comparison. `open NAME`
prints where an incident is and notes the time, `answer NAME JSON` notes the answer and the time again. KEY.json, which no reader gets,
says which incident each name stands for.
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

CHOSEN = {"partial2": 4, "partial3": 4, "real2": 4, "real3": 4, "pastes4": 4}
KINDS = ("dumps", "logs", "stacks")
READERS = ("first", "second")


def unpacked(scratch: Path, name: str) -> Path:
    """Unpack a set of the corpus, and return its folder."""
    with tarfile.open(CORPUS / f"{name}.tar.xz") as archive:
        archive.extractall(scratch / name, filter="data")
    return scratch / name


#: What a reader calls before and after reading an incident; the times are the clock's, not the reader's.
OPEN = """#!/bin/sh
# open NAME: where the incident is; notes the time.
cd "$(dirname "$0")" && echo "{\\"name\\": \\"$1\\", \\"opened\\": $(date +%s)}" >> times.jsonl && find "$PWD/$1" -type f
"""
ANSWER = """#!/bin/sh
# answer NAME JSON: keeps the answer; notes the time.
cd "$(dirname "$0")" && echo "{\\"name\\": \\"$1\\", \\"answered\\": $(date +%s), \\"answer\\": $2}" >> times.jsonl
"""
QUESTIONS = """For each incident, in the order of this list: `./open NAME`, read what it lists (a brief, or the files of the incident), then
`./answer NAME '{"ranks": [3], "cause": "...", "confidence": "high", "suspects": []}'` before you open the next one: which global
ranks caused the hang (an empty list if nobody can be named), which cause of the list, how sure (high, medium, low), and whom you
suspect if you are not sure.

"""


def write(out: Path, key: Path, seed: int) -> None:
    """Write the two readers' packets, and the key to the names of the incidents."""
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
            with_brief, with_files = [out / reader / label for reader in READERS[:: 1 if number % 2 else -1]]
            for kind in KINDS:
                if (incident / kind).is_dir():
                    shutil.copytree(incident / kind, with_files / kind)
            with_brief.mkdir(parents=True)
            (with_brief / "brief.md").write_text(hangscope.analyze(with_files).to_brief())
    key.write_text(json.dumps(names, indent=1) + "\n")
    for reader in READERS:
        (out / reader / "QUESTIONS.md").write_text(
            f"{QUESTIONS}Incidents: {', '.join(names)}\nCauses: {', '.join(CATALOG)}\n"
        )
        for name, text in (("open", OPEN), ("answer", ANSWER)):
            (out / reader / name).write_text(text)
            (out / reader / name).chmod(0o755)


def answers_of(packet: Path) -> dict[str, list[dict[str, Any]]]:
    """Return a reader's answers, those with the brief and those with the files, each with its name and seconds."""
    opened: dict[str, int] = {}
    found: dict[str, list[dict[str, Any]]] = {"brief": [], "files": []}
    for line in (packet / "times.jsonl").read_text().splitlines():
        row = json.loads(line)
        name = row["name"]
        if "opened" in row:
            opened.setdefault(name, row["opened"])
        else:
            given = "brief" if (packet / name / "brief.md").is_file() else "files"
            found[given].append({"name": name, "seconds": row["answered"] - opened[name], **row["answer"]})
    return found


def score(key: Path, packets: list[Path]) -> None:
    """Print one row for the briefs and one for the files, over both readers."""
    names = json.loads(key.read_text())
    print(
        "| readers with the | n | ranks | cause | both | high: right | innocent named at high or medium | median time |"
    )
    print("| --- |" + " ---: |" * 7)
    with tempfile.TemporaryDirectory(prefix="hangscope-briefs-") as scratch:
        for name in CHOSEN:
            unpacked(Path(scratch), name)
        for given in ("brief", "files"):
            rows = [row for packet in packets for row in answers_of(packet)[given]]
            marks = []
            for row in rows:
                truth = Truth.read(Path(scratch) / names[row["name"]] / "truth.json")
                cause = row.get("cause") or None
                status = "no_hang" if cause in (None, "healthy", "no_hang") else "hang"
                answer = Given(status, tuple(sorted(row["ranks"])), cause, row.get("confidence"), stated=1.0)
                marks.append(mark(truth, answer, "both"))
            high = [m.right for m in marks if m.confidence == "high"]
            cells = [
                given, len(marks), sum(m.ranks for m in marks), sum(m.cause for m in marks), sum(m.right for m in marks),
                f"{sum(high)} of {len(high)}", sum(m.innocent for m in marks), f"{median(row['seconds'] for row in rows):.0f} s",
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
    scoring.add_argument("packets", nargs=2, type=Path)
    for one in (writing, scoring):
        one.add_argument("--key", type=Path, required=True)
    options = parser.parse_args()
    if options.command == "write":
        write(options.out, options.key, options.seed)
    else:
        score(options.key, options.packets)


if __name__ == "__main__":
    main()
