"""The corpus: every set of incidents with known answers, and how well each is answered.

    python benchmarks/score.py --corpus                   # all sets: one row each, and what got worse
    python benchmarks/score.py --corpus partial --verbose # one set, with its misses
    python benchmarks/score.py --corpus --update          # remember these answers as the last ones
    python benchmarks/corpus.py add FOLDER --about TEXT [--expert FILE]

A set is `fixtures/corpus/SET.tar.xz` (one folder per incident: `dumps/`, perhaps `logs/`, `stacks/`, `logs_detail/`, and
`truth.json`) with `SET.json` next to it: what it is, the answers of a reader who had only the files, hangscope's first
answers, given before anything was changed for the set, and its last ones. `fixtures/corpus/README.md` lists the keys.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any
from zlib import crc32

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from corpus_answers import INPUTS, Given, Mark, Truth, ask, flat, mark, says  # noqa: E402

CORPUS = ROOT / "fixtures" / "corpus"


@dataclass(slots=True)
class Set:
    """One set: its name, what is known about it, and its incidents when they are unpacked into `folder`."""

    name: str
    facts: dict[str, Any]
    folder: Path | None = None
    answers: dict[str, Given] = field(default_factory=dict)
    marks: dict[str, Mark] = field(default_factory=dict)
    contradictions: dict[str, list[str]] = field(default_factory=dict)
    every: int = 1  # one question in so many is asked, the same ones each time

    def asks(self, key: str) -> bool:
        """Return whether a question is among those that are asked."""
        return crc32(key.encode()) % self.every == 0

    def questions(self) -> Iterator[tuple[str, Path, str]]:
        """Yield a key, an incident and the name of an input for everything that is asked of this set."""
        assert self.folder is not None
        for path in sorted(self.folder.glob("*/truth.json")):
            incident = path.parent
            for asked, folders in INPUTS.items():
                wanted = [incident / name for name in folders]
                key = key_of(incident, asked)
                if self.asks(key) and all(part.is_dir() and any(part.iterdir()) for part in wanted):
                    yield key, incident, asked


def key_of(incident: Path, asked: str) -> str:
    """Return the key of a question: the incident, and the input where it has several."""
    several = (incident / "logs").is_dir() or (incident / "logs_detail").is_dir()
    return f"{incident.name} [{asked}]" if several else incident.name


def sets(names: Sequence[str]) -> list[Set]:
    """Return the sets of the corpus, or those whose names are given."""
    found = [Set(path.stem, json.loads(path.read_text())) for path in sorted(CORPUS.glob("*.json"))]
    unknown = set(names) - {one.name for one in found}
    if unknown:
        raise SystemExit(
            f"no such set: {', '.join(sorted(unknown))}; there are {', '.join(s.name for s in found)}"
        )
    return [one for one in found if not names or one.name in names]


def _answer(task: tuple[str, str, str]) -> tuple[str, Given, Mark, list[str]] | None:
    key, incident, asked = task
    truth = Truth.read(Path(incident) / "truth.json")
    if asked in truth.skip_inputs:
        return None
    given, contradictions = ask([f"{incident}/{folder}" for folder in INPUTS[asked]], truth)
    return key, given, mark(truth, given, asked), contradictions


def answer(wanted: Sequence[Set], jobs: int) -> Iterator[Set]:
    """Unpack sets, ask everything, keep the answers in them, and yield each when it has all of them."""
    with (
        tempfile.TemporaryDirectory(prefix="hangscope-corpus-") as scratch,
        ProcessPoolExecutor(jobs) as pool,
    ):
        asked = []
        for one in wanted:
            one.folder = Path(scratch) / one.name
            with tarfile.open(CORPUS / f"{one.name}.tar.xz") as archive:
                archive.extractall(one.folder, filter="data")
            tasks = [(key, str(incident), inputs) for key, incident, inputs in one.questions()]
            asked.append(pool.map(_answer, tasks, chunksize=4))
        for one, answers in zip(wanted, asked, strict=True):
            for key, given, marked, contradictions in filter(None, answers):
                one.answers[key], one.marks[key] = given, marked
                if contradictions:
                    one.contradictions[key] = contradictions
            one.folder = None
            yield one


def share(flags: Iterator[bool | None]) -> str:
    """Return "right of asked", empty where nothing was asked."""
    asked = [flag for flag in flags if flag is not None]
    return f"{sum(asked)} of {len(asked)}" if asked else ""


HEADER = (
    "| set | n | ranks | cause | line | high: right | medium: right | innocent named at high or medium | suspects hold the culprit | helpful |\n"
    f"| --- |{' ---: |' * 9}"
)


def row(name: str, marks: Sequence[Mark]) -> str:
    """Return one row of the table."""
    words = [share(m.right for m in marks if m.confidence == word) for word in ("high", "medium")]
    loud = sum(m.innocent and m.confidence in ("high", "medium") for m in marks)
    cells = [
        name,
        str(len(marks)),
        share(m.ranks for m in marks),
        share(m.cause for m in marks),
        share(m.line for m in marks),
        *words,
        str(loud),
        share(m.suspects for m in marks),
        share(m.helpful for m in marks),
    ]
    return f"| {' | '.join(cells)} |"


def worse(one: Set) -> Iterator[str]:
    """Yield what the last remembered answers had right and these do not."""
    for key, before in filter(lambda item: one.asks(item[0]), one.facts.get("last", {}).items()):
        now = one.marks.get(key)
        if now is None:
            yield f"{one.name}/{key}: no longer asked"
            continue
        lost = [name for name in ("ranks", "cause", "helpful") if before.get(name) and not getattr(now, name)]
        gained = "innocent" if now.innocent and not before.get("innocent") else ""
        if lost or gained:
            yield f"{one.name}/{key}: lost {', '.join(lost) or 'nothing'}{', names an innocent rank' if gained else ''}: {one.answers[key]}"


def run(
    names: Sequence[str], jobs: int = 2, *, every: int = 1, update: bool = False, verbose: bool = False
) -> int:
    """Print the table, the misses where wanted, what got worse and what contradicts itself; return 1 for either."""
    wanted = [replace(one, every=every) for one in sets(names)]
    print(HEADER)
    lost: list[str] = []
    marks: list[Mark] = []
    contradicting: list[str] = []
    for one in answer(wanted, jobs):
        print(row(one.name, list(one.marks.values())), flush=True)
        marks += one.marks.values()
        lost += worse(one)
        contradicting += [
            f"{one.name}/{key}: {said}" for key, found in one.contradictions.items() for said in found
        ]
        if verbose:
            for key, marked in one.marks.items():
                if not marked.right or marked.helpful is False:
                    print(f"  miss {key}: {one.answers[key]} {marked}", file=sys.stderr)
        if update and every == 1:
            one.facts["last"] = {
                key: {k: v for k, v in asdict(marked).items() if v}
                for key, marked in sorted(one.marks.items())
            }
            write(one)
    print(row("all", marks))
    print("".join(f"\nworse: {text}" for text in lost), file=sys.stderr)
    print("".join(f"\ncontradicts itself: {text}" for text in contradicting), file=sys.stderr)
    return 1 if lost or contradicting else 0


def write(one: Set) -> None:
    """Write what is known about a set."""
    (CORPUS / f"{one.name}.json").write_text(json.dumps(one.facts, indent=1, sort_keys=True) + "\n")


def first_looks() -> str:
    """Return the table of first answers, by date, as Markdown."""
    lines = [
        "| set | seen first | n | reader: ranks | cause | hangscope: ranks | cause | high: right | medium: right | innocent named at high or medium | helpful | reader: helpful |",
        f"| --- | --- |{' ---: |' * 10}",
    ]
    for one in sorted(sets(()), key=lambda s: (s.facts.get("date", ""), s.name)):
        first = one.facts.get("first_look")
        if not first:
            continue
        given = one.facts.get("reader", {}).get("marks", {})
        marks = [
            Mark(**{**dict.fromkeys(Mark.__slots__), **marked})
            for key, marked in first["marks"].items()
            if not given or key in given
        ]
        reader = given.values()
        cells = [
            one.name,
            one.facts["date"],
            str(len(marks)),
            *(share(bool(m.get(k)) for m in reader) for k in ("ranks", "cause")),
            share(bool(m.ranks) for m in marks),
            share(bool(m.cause) for m in marks),
            *(
                share(bool(m.ranks and m.cause) for m in marks if m.confidence == word)
                for word in ("high", "medium")
            ),
            str(sum(bool(m.innocent) and m.confidence in ("high", "medium") for m in marks)),
            share(bool(m.helpful) for m in marks) if any(m.helpful for m in marks) else "",
            share(bool(m.get("helpful")) for m in reader) if any(m.get("helpful") for m in reader) else "",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def graded() -> str:
    """Return the table of the grades of somebody who did not know whose answer was whose, as Markdown."""
    words = ("helpful", "neutral", "misleading")
    lines = [f"| set | whose | {' | '.join(words)} |", f"| --- | --- |{' ---: |' * len(words)}"]
    for one in sets(()):
        grades = one.facts.get("graded", {})
        for whose in ("hangscope", "reader") if grades else ():
            counts = [sum(own.get(whose) == word for own in grades.values()) for word in words]
            lines.append(f"| {one.name} | {whose} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines)


def readers_marks(folder: Path, answers: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Compare a reader's answers (rows with `where`, `inputs`, `ranks`, `cause`, `status`, ...) with the truths."""
    marks = {}
    for given in answers:
        name = Path(given.get("where") or given["name"]).name
        truth = Truth.read(folder / name / "truth.json")
        place = re.match(r"(\S+):(\d+)", given.get("line") or "")
        said = given.get("answer") or given.get("why") or ""
        one = Given(
            given.get("status", "hang"),
            tuple(sorted(given["ranks"])),
            given["cause"],
            given.get("confidence"),
            tuple(sorted(given.get("suspects") or ())),
            (Path(place[1]).name, int(place[2])) if place else None,
            sum(says(flat(said), wanted) for wanted in truth.must_say) / max(1, len(truth.must_say)),
        )
        there = {part for part in given.get("inputs", ["dumps"]) if any((folder / name / part).glob("*"))}
        asked = next((key for key, parts in INPUTS.items() if set(parts) == there), "logs detail")
        marks[key_of(folder / name, asked)] = {k: v for k, v in asdict(mark(truth, one, asked)).items() if v}
    return marks


def add(folder: Path, about: str, date: str, reader: Path | None, jobs: int, *, known: bool) -> None:
    """Put a folder of incidents into the corpus and give hangscope its first look at it."""
    CORPUS.mkdir(exist_ok=True)
    name = folder.name
    facts: dict[str, Any] = {"about": about, "date": date}
    with tarfile.open(CORPUS / f"{name}.tar.xz", "w:xz", preset=9) as archive:
        for path in sorted(folder.glob("*/truth.json")):
            archive.add(path.parent, path.parent.name, filter=_neutral)
    (one,) = answer([Set(name, facts)], jobs)
    facts["last"] = {key: {k: v for k, v in asdict(m).items() if v} for key, m in sorted(one.marks.items())}
    if not known:
        answers = {key: asdict(given) for key, given in sorted(one.answers.items())}
        facts["first_look"] = {"answers": answers, "marks": facts["last"]}
    if reader is not None:
        rows = [x for x in json.loads(reader.read_text()) if x.get("set", name) == name]
        facts["reader"] = {"answers": rows, "marks": readers_marks(folder, rows)}
    write(one)
    print(HEADER)
    print(row(name, list(one.marks.values())))


def _neutral(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if entry.name.endswith("spec.json"):
        return None
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    entry.mtime = 0
    entry.mode = 0o755 if entry.isdir() else 0o644
    return entry


def main() -> None:
    """Run `add`, or print the table of first looks."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    adding = commands.add_parser(
        "add", help="put a folder of incidents into the corpus, with hangscope's first look"
    )
    adding.add_argument("folder", type=Path)
    adding.add_argument("--about", required=True, help="one sentence: where the incidents come from")
    adding.add_argument("--date", required=True, help="when they were first seen, YYYY-MM-DD")
    adding.add_argument("--reader", type=Path, help="JSON: the answers of a reader who had only the files")
    adding.add_argument("--known", action="store_true", help="it was seen before: there is no first look")
    adding.add_argument("--jobs", type=int, default=2)
    commands.add_parser("first-looks", help="print the table of first answers")
    commands.add_parser(
        "graded", help="print how answers were graded by somebody who did not know whose they were"
    )
    options = parser.parse_args()
    if options.command == "add":
        add(options.folder, options.about, options.date, options.reader, options.jobs, known=options.known)
    else:
        print(graded() if options.command == "graded" else first_looks())


if __name__ == "__main__":
    main()
