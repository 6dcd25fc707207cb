"""Damage incidents at random and check what holds whatever the input: `python benchmarks/fuzz.py --minutes 10 [--seed 1]`.

Every fixture, every excerpt of text and some simulated jobs are mutated by structure, by bytes, by lines, as folders of files and by consistent lies
(`mutations.py`). Checked of every case: no exception but the two that `analyze` promises, all four outputs are made, and the parent
stays under 1 GB and 10 seconds of processor time beyond what the sizes justify. Of some: the same bytes twice, and with `--jobs 1` as
with `--jobs 4`. Counted: what became of the verdict, above all other verdicts at `high` of which no word says that the input is damaged,
apart from those that rest on whole lines of undamaged inputs alone (`whole_lines.py`): no input shows that these are damaged.

Case N of a seed is always the same: `--case N --keep FOLDER` makes it again and leaves its input in FOLDER/N. Exits with 1 where a
check failed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import growth
import mutations
from whole_lines import WholeLines

import hangscope
from hangscope.ingest.files.sources import SourceFile
from hangscope.ingest.workers.pool import Pool
from tests.simulator import FAULTS, write_incident

ROOT = Path(__file__).resolve().parents[1]
SIMULATED = 16
SECONDS, SECONDS_PER_MB, MEGABYTES = 10.0, 2.0, 1000
TWICE_EVERY, JOBS_EVERY = 5, 25
#: What became of a verdict that is other than before, and at `high` or `no_hang`. `UNTRACED`: by the rule of `whole_lines.py`.
SAID, UNTRACED, SILENT = "sure, damage said", "sure, on whole lines", "sure, nothing said"


class Overrun(BaseException):
    """The parent took too long; no handler of errors may catch it."""


class Readers(Executor):
    """Reads files in children with limits, which serve one case after another."""

    def __init__(self) -> None:
        self.pool = Pool(2, 2**31)

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Read one file; return its finished future."""
        path, shown, _ = args
        future: Future[Any] = Future()
        future.set_result(self.pool.read(SourceFile(path, shown, Path(path).stat().st_size)))
        return future


@dataclass
class Row:
    """The counts of one way to mutate."""

    cases: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


@dataclass
class Run:
    """What a run has found so far."""

    readers: Readers
    whole: WholeLines
    rows: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    failures: list[str] = field(default_factory=list)
    confident: list[str] = field(default_factory=list)
    untraced: list[str] = field(default_factory=list)
    slowest: tuple[float, int] = (0.0, 0)
    largest: tuple[int, int] = (0, 0)
    twice: int = 0
    jobs: int = 0


def bases(folder: Path) -> dict[str, Path]:
    """Return the incidents that are mutated, by name; simulated ones are written below `folder`."""
    found = {path.parent.name: path for path in sorted((ROOT / "fixtures").glob("*/dumps"))}
    for path in sorted((ROOT / "fixtures" / "text").glob("*.txt")):
        target = folder / "text" / path.stem
        target.mkdir(parents=True)
        shutil.copy(path, target / "job.log")
        found[f"text/{path.stem}"] = target
    chance = random.Random("bases")
    for seed, fault in enumerate(chance.sample(sorted(FAULTS), min(SIMULATED, len(FAULTS)))):
        target = folder / "simulated" / fault
        try:
            write_incident(target, fault, seed)
        except Exception as error:  # a fault that does not fit this seed
            print(f"{fault}: {error}", file=sys.stderr)
            continue
        found[f"simulated/{fault}"] = target / "dumps"
    return found


def mutate(folder: Path, chance: random.Random, donors: list[Path]) -> str:
    """Mutate an incident in one or several of its files; return the way."""
    kind = chance.choice(
        ("structure", "structure", "bytes", "bytes", "lines", "lines", "files", "lies", "lies")
    )
    if kind == "lies":
        mutations.lies(folder, chance)
        return kind
    if kind == "files":
        for _ in range(chance.choice((1, 1, 3))):
            with suppress(OSError):  # a name that is taken
                mutations.files(folder, chance)
        return kind
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    dumps = [
        path for path in found if b"\0" in path.read_bytes()[:64] or path.read_bytes()[:1] in (b"\x80", b"{")
    ]
    fitting = (
        dumps if kind == "structure" else [p for p in found if p not in dumps] if kind == "lines" else found
    )
    if not fitting:
        kind, fitting = "bytes", found
    donor = chance.choice(donors).read_bytes()
    for path in chance.sample(fitting, min(len(fitting), chance.choice((1, 1, 1, 2, 99)))):
        data = path.read_bytes()
        try:
            path.write_bytes(chance.choice(mutations.OF_A_FILE[kind])(data, chance, donor))
        except (ValueError, TypeError, KeyError, EOFError):  # no dump: nothing of its structure to change
            path.write_bytes(mutations.flip(data, chance, donor))
    return kind


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise Overrun after so much processor time of this process."""

    def overrun(*_: object) -> None:
        raise Overrun

    before = signal.signal(signal.SIGPROF, overrun)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outputs(folder: Path, **options: Any) -> tuple[hangscope.Report, str]:
    """Return the report on a folder, and all of its outputs as one text."""
    report = hangscope.analyze(folder, **options)
    report.verdict  # noqa: B018 (it is made when it is asked for)
    return report, "\0".join(
        (report.to_json(), report.to_markdown(), report.to_text(verbose=True), report.to_html())
    )


def claim(report: hangscope.Report) -> tuple[Any, ...]:
    """Return what a report says of the job."""
    verdict = report.verdict
    if verdict is None:
        return (report.status, None, (), "")
    return (report.status, verdict.cause, tuple(verdict.culprit_ranks), verdict.confidence)


def said(report: hangscope.Report) -> set[str]:
    """Return what a report says of its inputs."""
    view = report.to_dict()
    notes = {f"{w.code} {w.file}" for w in report.warnings}
    notes |= {f"{i['file']} {i['status']}" for i in view["inputs"] if i["status"] != "used"}
    return notes | ({"partial"} if view["partial"]["is_partial"] else set())


def _memory() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) // 1024


def one(number: int, base: hangscope.Report, folder: Path, kind: str, run: Run) -> str:
    """Analyse one mutated incident with all checks, and return what became of its verdict."""
    size = sum(path.lstat().st_size for path in folder.rglob("*"))
    seconds = SECONDS + SECONDS_PER_MB * size / 1e6
    Path("/proc/self/clear_refs").write_text("5")
    began = time.process_time()
    try:
        with limited(seconds):
            report, text = outputs(folder, executor=run.readers)
    except hangscope.HangscopeError:
        return "no input"
    except Overrun:
        run.failures.append(
            f"case {number} ({kind}): the parent took more than {seconds:.0f} s\n{traceback.format_exc(limit=-4)}"
        )
        return "failed"
    except Exception:
        run.failures.append(f"case {number} ({kind}):\n{traceback.format_exc(limit=-6)}")
        return "failed"
    run.slowest = max(run.slowest, (time.process_time() - began, number))
    run.largest = max(run.largest, (_memory(), number))
    if _memory() > MEGABYTES:
        run.failures.append(f"case {number} ({kind}): the parent took {_memory()} MB")
    chance = random.Random(number)
    if chance.randrange(TWICE_EVERY) == 0:
        run.twice += 1
        if outputs(folder, executor=run.readers)[1] != text:
            run.failures.append(f"case {number} ({kind}): other bytes the second time")
    if chance.randrange(JOBS_EVERY) == 0:
        run.jobs += 1
        if outputs(folder, jobs=1)[1] != text or outputs(folder, jobs=4)[1] != text:
            run.failures.append(f"case {number} ({kind}): other bytes with other readers")
    return became(f"case {number} ({kind})", base, report, folder, run)


def became(case: str, base: hangscope.Report, report: hangscope.Report, folder: Path, run: Run) -> str:
    """Return what became of a verdict; what is confident, other, and silent on damage is kept to be looked at."""
    one, other = claim(base), claim(report)
    if one[:3] == other[:3]:
        return "as before"
    if other[3] != "high" and other[0] != "no_hang":
        return "other, not high"
    if said(report) - said(base):
        return SAID
    untraced = run.whole.carry(report, folder)
    (run.untraced if untraced else run.confident).append(what := f"{case}: {one} became {other}")
    if not untraced:
        print(what, file=sys.stderr, flush=True)
    return UNTRACED if untraced else SILENT


def table(run: Run, minutes: float) -> str:
    """Return the results in Markdown."""
    outcomes = ["as before", "other, not high", SAID, UNTRACED, SILENT, "no input", "failed"]
    result = [f"| mutated | cases | {' | '.join(outcomes)} |", "| --- |" + " ---: |" * (len(outcomes) + 1)]
    for kind, row in sorted(run.rows.items()):
        result.append(f"| {kind} | {row.cases:,} | {' | '.join(f'{row.outcomes[o]:,}' for o in outcomes)} |")
    cases = sum(row.cases for row in run.rows.values())
    result.append("")
    result.append(
        f"{cases:,} cases in {minutes:.0f} minutes; {run.twice:,} of them twice and {run.jobs:,} with one and with four readers. "
        f"Slowest parent: {run.slowest[0]:.1f} s of processor time (case {run.slowest[1]}); largest: {run.largest[0]} MB."
    )
    return "\n".join(result)


def main() -> int:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--case", type=int, nargs="+", help="these cases alone")
    parser.add_argument(
        "--growth", action="store_true", help="print the cost of hostile input at doubled sizes instead"
    )
    parser.add_argument("--keep", type=Path, help="leave the inputs of --case here")
    options = parser.parse_args()
    if options.growth:
        growth.main()
        return 0
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="fuzz-") as temporary:
        folders = bases(Path(temporary))
        donors = [path for folder in folders.values() for path in sorted(folder.rglob("*")) if path.is_file()]
        run = Run(Readers(), WholeLines(folders.values()))
        reports: dict[str, hangscope.Report] = {}
        for name, folder in list(folders.items()):
            try:
                reports[name] = hangscope.analyze(folder, executor=run.readers)
            except hangscope.HangscopeError:
                del folders[name]  # an excerpt that tells nothing by itself
        for number in options.case or count():
            if options.case is None and time.monotonic() - began >= 60 * options.minutes:
                break
            chance = random.Random(f"{options.seed}-{number}")
            name = chance.choice(sorted(folders))
            work = Path(temporary) / "work" / "job"
            shutil.copytree(folders[name], work)
            kind = mutate(work, chance, donors)
            if options.keep is not None:
                shutil.copytree(work, options.keep / str(number), symlinks=True)
            outcome = one(number, reports[name], work, kind, run)
            run.rows[kind].cases += 1
            run.rows[kind].outcomes[outcome] += 1
            shutil.rmtree(work.parent)
            if options.case is not None:
                print(number, name, kind, outcome, json.dumps(claim(reports[name]), default=str))
            if number % 500 == 499:
                print(
                    f"{number + 1} cases, {len(run.failures)} failures, {len(run.confident)} confident",
                    file=sys.stderr,
                )
        run.readers.pool.close()
    print(table(run, (time.monotonic() - began) / 60))
    told = (
        ("Failures", run.failures),
        (SILENT.capitalize(), run.confident),
        (UNTRACED.capitalize(), run.untraced),
    )
    for title, found in told:
        print(f"\n{title}: {len(found)}")
        print("\n".join(found[:60]))
    return 1 if run.failures else 0


if __name__ == "__main__":
    sys.exit(main())
