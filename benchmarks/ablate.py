"""Switch off each part of the core, one at a time, and name the incidents that need it: `python benchmarks/ablate.py`.

A part is a function, a branch or a loop of `align/`, `explain/`, `causes/` and `verdict/`; `--clauses` adds every operand of a
condition, filter and choice. It is tried on the questions of the corpus, the excerpts of `fixtures/text/` and some simulated jobs:

    needed      an answer gets worse without it: two incidents are named where there are two
    one job     it decides who is named, and the incidents that need it are of one job alone
    words       it changes what is said, and never who is named, why or how sure
    changes     it changes answers, none of those that were tried for the worse
    nothing     it does something, and no answer changes
    never       no incident comes there

The last three are unproven: each needs an incident, or goes. `benchmarks/unproven.txt` lists those that are known (`--update`
writes it); `--sample N` tries that many parts only, drawn by `--seed`, and fails where one is unproven and not in the list.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bank import Case, Grade, judged, of_corpus, of_excerpts, of_simulator
from corpus_answers import Given
from switches import ROOT, SWITCHES, Finder, Switch

ROOMS = ("align", "explain", "causes", "verdict")
PARTS = ("function", "branch", "loop")
UNPROVEN = ("changes", "nothing", "never")
KINDS = ("needed", "one job", "words", *UNPROVEN)
LIST = ROOT / "benchmarks" / "unproven.txt"
INCIDENTS, SECONDS = 40, 20.0  # that are judged again for one part, drawn; for each of them
BROKEN = Grade(False, False, True, False, False, False, "high")


class _Over(BaseException):
    """Time is up."""


def _stop(*_: object) -> None:
    raise _Over


def answered(case: Case) -> tuple[Grade, Given | None, str]:
    """Return the grade of an answer, the answer, and all that is said."""
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return case.grade(judged)
    except _Over:
        return BROKEN, None, "no answer in time"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@dataclass(slots=True)
class Found:
    """What is known of one part: its kind, and the incidents that tell, each with what it loses."""

    switch: Switch
    kind: str
    incidents: list[str] = field(default_factory=list)

    @property
    def key(self) -> str:
        """Return the part's name in the list, which no other line moves."""
        return f"{self.switch.file}: {self.switch.kind}: {self.switch.what}"


class Trial:
    """All cases, what is answered with every part on, and which parts do something in which case."""

    def __init__(self, cases: Sequence[Case]) -> None:
        self.cases = cases
        self.answers: list[tuple[Grade, Given | None, str]] = []
        self.users: dict[int, list[int]] = defaultdict(list)
        for place, case in enumerate(cases):
            for switch in SWITCHES:
                switch.used = False
            self.answers.append(answered(case))
            for number, switch in enumerate(SWITCHES):
                if switch.used:
                    self.users[number].append(place)

    def of(self, number: int, most: int = INCIDENTS) -> Found:
        """Switch one part off and return what that changes, in so many incidents at most."""
        places = self.users.get(number, [])
        if not places:
            return Found(SWITCHES[number], "never")
        drawn = random.Random(SWITCHES[number].what).sample(places, min(len(places), most))
        SWITCHES[number].off = True
        try:
            return self._tried(SWITCHES[number], drawn)
        finally:
            SWITCHES[number].off = False

    def _tried(self, switch: Switch, places: Iterable[int]) -> Found:
        kind, worse, named = "nothing", dict[str, str](), False
        for place in places:
            case, (grade, given, said) = self.cases[place], self.answers[place]
            if case.job in worse:
                continue
            now, told, words = answered(case)
            if lost := now.worse_than(grade):
                worse[case.job] = f"{case.name} ({lost})"
                named = named or "ranks" in lost or "innocent" in lost
                if len(worse) > 1:
                    break
            elif told != given:
                kind = "changes"
            elif words != said and kind == "nothing":
                kind = "words"
        if worse:
            kind = "one job" if named and len(worse) == 1 else "needed"
        return Found(switch, kind, [*worse.values()])


@dataclass(frozen=True, slots=True)
class Table:
    """What was found of all parts that were tried."""

    found: Sequence[Found]

    def rows(self) -> str:
        """Return the number of parts of each kind, by room, as Markdown."""
        lines = [f"| room | parts | {' | '.join(KINDS)} |", f"| --- |{' ---: |' * (len(KINDS) + 1)}"]
        rooms: dict[str, Counter[str]] = defaultdict(Counter)
        for one in self.found:
            rooms[one.switch.file.split("/")[1]][one.kind] += 1
            rooms["all"][one.kind] += 1
        for room in (*ROOMS, "all"):
            counts = rooms[room]
            cells = [room, str(counts.total()), *(str(counts[kind]) for kind in KINDS)]
            lines.append(f"| {' | '.join(cells)} |")
        return "\n".join(lines)

    def unproven(self) -> list[str]:
        """Return the keys of the parts that no incident needs."""
        return sorted({one.key for one in self.found if one.kind in UNPROVEN})


def load(wanted: Iterable[str]) -> None:
    """Import these files and folders of the package with switches in them."""
    for start in wanted:
        for path in sorted((ROOT / start).rglob("*.py")) if start.endswith("/") else [ROOT / start]:
            if path.name != "__init__.py":
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--room", action="append", choices=ROOMS, help="this room only; may be repeated")
    parser.add_argument("--file", action="append", help="this file only (hangscope/align/fold.py)")
    parser.add_argument("--set", action="append", help="this set of the corpus only, and nothing else")
    parser.add_argument("--clauses", action="store_true", help="try clauses, filters and choices as well")
    parser.add_argument("--per-fault", type=int, default=1, help="simulated jobs per fault, in two ways each")
    parser.add_argument("--sample", type=int, help="try this many parts, and fail on one that is not listed")
    parser.add_argument("--seed", default="0", help="what draws the sample")
    parser.add_argument("--update", action="store_true", help="write the list of unproven parts")
    options = parser.parse_args()
    wanted = options.file or [f"hangscope/{room}/" for room in options.room or ROOMS]
    sys.meta_path.insert(0, Finder(wanted))
    signal.signal(signal.SIGALRM, _stop)
    load(wanted)
    others = () if options.set else (of_excerpts(), of_simulator(options.per_fault, 1))
    trial = Trial(list(chain(of_corpus(options.set or ()), *others)))
    numbers = [n for n, s in enumerate(SWITCHES) if options.clauses or s.kind in PARTS]
    if options.sample is not None:
        numbers = sorted(random.Random(options.seed).sample(numbers, min(options.sample, len(numbers))))
    listed = set(LIST.read_text().splitlines()) if options.sample is not None else set()
    found = [trial.of(number) for number in numbers]
    # What was drawn of their incidents may not have held the one that needs them.
    doubtful = [one.kind in UNPROVEN and one.key not in listed for one in found]
    found = [
        trial.of(number, len(trial.cases)) if doubt else one
        for number, one, doubt in zip(numbers, found, doubtful, strict=True)
    ]
    table = Table(found)
    for one in table.found:
        print(
            f"{one.kind}: {one.switch.place}: {one.switch.what}: {'; '.join(one.incidents)}", file=sys.stderr
        )
    print(table.rows())
    if options.update:
        LIST.write_text("\n".join(table.unproven()) + "\n")
    new = sorted(set(table.unproven()) - listed) if options.sample is not None else ()
    print("".join(f"\nno incident needs {key}: add one, or delete it" for key in new), file=sys.stderr)
    return 1 if new else 0


if __name__ == "__main__":
    sys.exit(main())
