"""How well `hangscope history similar` finds incidents of one bug: `python benchmarks/similarity.py [--seeds 3]`.

- simulated: every fault in a job of 8 and in one of 16 ranks whose scripts have the same lines. These two are of one bug; jobs
  with two different faults are of two bugs. The fault may hit another collective of the larger job, so the recall is a lower bound.
- corpus: every incident as its dumps, its logs, or both show it. These are of one bug; those of two incidents are of two.

Nothing is compared without the culprit's own line: "with a line" are the pairs of one bug that have it in both reports.
"""

from __future__ import annotations

import argparse
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from concurrent.futures import ProcessPoolExecutor
from itertools import combinations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from corpus import sets
from corpus_answers import INPUTS

import hangscope
from hangscope.history.entry import Entry, entry_of
from hangscope.history.similar import ALIKE, comparable, similarity
from tests.in_thread import InThisThread
from tests.simulator import FAULTS, WAYS, Remains, collect, simulate

SIZES = (8, 16)
Labelled = tuple[str, Entry]


def entry_at(paths: list[str], label: str) -> Labelled:
    """Analyze paths, and return the entry of the store under the label of its bug."""
    report = hangscope.analyze(paths, store="", executor=InThisThread())
    return label, entry_of(report.document, paths, 0.0)


def simulated(task: tuple[str, int]) -> list[Labelled]:
    """Return the entries of one fault in jobs of two sizes, none where their scripts differ."""
    fault, seed = task
    found, sources = [], []
    for size in SIZES:
        try:
            incident = simulate(fault, seed, world_size=size, layout=FAULTS[fault][1][0])
        except Exception:  # a job of this size does not carry the fault
            return []
        sources.append(
            repr(
                sorted(
                    (k, v) for k, v in vars(incident.job.source).items() if isinstance(v, (int, str, dict))
                )
            )
        )
        left = Remains(incident)
        with tempfile.TemporaryDirectory(prefix="hangscope-similar-") as scratch:
            left.write(
                Path(scratch), collect(left, WAYS[0] if isinstance(WAYS, (list, tuple)) else next(iter(WAYS)))
            )
            try:
                found.append(entry_at([scratch], f"{fault} {seed}"))
            except hangscope.HangscopeError:
                return []
    return found if len(set(sources)) == 1 else []


def of_corpus(task: tuple[str, str]) -> list[Labelled]:
    """Return the entries of one incident of the corpus, seen through each of its inputs."""
    label, folder = task
    found = []
    for folders in INPUTS.values():
        paths = [f"{folder}/{name}" for name in folders]
        if all(Path(path).is_dir() and any(Path(path).iterdir()) for path in paths):
            try:
                found.append(entry_at(paths, label))
            except hangscope.HangscopeError:
                continue
    return found


def row(name: str, entries: list[Labelled]) -> str:
    """Return one row of the table."""
    same, found, right, lined = 0, 0, 0, 0
    two_in_one = Counter[bool]()
    for (label, one), (other_label, other) in combinations(entries, 2):
        if label != other_label and label.split()[0] == other_label.split()[0]:
            continue  # one fault, with lines of its own: the same bug in an edited file, or in another place
        alike = similarity(one, other) >= ALIKE
        if label == other_label:
            same += 1
            lined += comparable(one) and comparable(other)
            right += alike
        elif one.function and (one.file, one.function) == (other.file, other.function):
            two_in_one[alike] += 1
        found += alike
    cells = [
        name, len(entries), same, lined, f"{right / max(1, same):.0%}", f"{right / max(1, lined):.0%}", f"{right} of {found}",
        f"{right / max(1, found):.0%}", f"{two_in_one[True]} of {two_in_one.total()}",
    ]  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args()
    print(
        "| incidents | n | pairs of one bug | with a line | recall | recall with a line | right of found | precision | "
        "found of two bugs in one function |"
    )
    print("| --- |" + " ---: |" * 8)
    tasks = [(fault, seed) for fault in FAULTS for seed in range(options.seeds)]
    with ProcessPoolExecutor(options.jobs) as pool:
        print(row("simulated", [e for es in pool.map(simulated, tasks, chunksize=4) for e in es]), flush=True)
        everything: dict[str, list[Labelled]] = defaultdict(list)
        for one in sets(()):
            with tempfile.TemporaryDirectory(prefix="hangscope-similar-") as scratch:
                with tarfile.open(
                    Path(__file__).parents[1] / "fixtures" / "corpus" / f"{one.name}.tar.xz"
                ) as archive:
                    archive.extractall(scratch, filter="data")
                folders = sorted(path.parent for path in Path(scratch).glob("*/truth.json"))
                found = pool.map(of_corpus, [(f"{one.name}/{f.name}", str(f)) for f in folders], chunksize=4)
                everything[one.name] = [e for es in found for e in es]
        print(row("corpus", [e for es in everything.values() for e in es]))


if __name__ == "__main__":
    main()
