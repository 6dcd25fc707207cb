"""Switch off each branch and function of the core, one at a time, and print what nothing misses: `python benchmarks/ablate.py`.

An `if` is switched off by taking its condition for false, a function by letting it return its empty value. A switch is *missed*
where the judgement of an incident changes (the captured ones under `fixtures/`, the excerpts of `fixtures/text/`, simulated ones
in every way of collecting), else where a test fails. The whole of it takes long: `--room` and `--file` look at a part.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import random
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from _pytest.runner import runtestprotocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from switches import ROOT, SWITCHES, Finder

ROOMS = ("align", "explain", "causes", "verdict")
TESTS = ("tests/align", "tests/causes", "tests/explain", "tests/verdict")
INCIDENTS, SECONDS = 40, 3.0  # that are judged again for one switch, drawn; for each of them
RUNS, TEST_SECONDS = 150, 20.0  # tests that are run again for one switch; for each of them
_FIXTURES = ROOT / "fixtures"


class _Over(BaseException):
    """Time is up, or all that is wanted is there."""


def _stop(*_: object, **__: object) -> None:
    raise _Over


def read(paths: list[str]) -> list[tuple[Any, list[Any]]]:
    """Return the incidents that a folder holds, as they come to the core, each with its notes."""
    import hangscope
    from hangscope import analysis
    from hangscope.report import view
    from tests.in_thread import InThisThread

    found, judge = [], analysis.analyse

    def keep(incident: Any, knowledge: Any = None) -> Any:
        found.append((incident, list(incident.notes)))
        return judge(incident, knowledge)

    with (
        mock.patch.object(analysis, "analyse", keep),
        mock.patch.object(view, "build_document", _stop),
        contextlib.suppress(_Over, hangscope.HangscopeError),
    ):
        hangscope.analyze(paths, executor=InThisThread())
    return found


def bank(per_fault: int) -> Iterator[tuple[Any, list[Any]]]:
    """Return all incidents: captured, excerpts of text, simulated."""
    from tests.simulator import FAULTS, WAYS, Remains, collect, simulate

    for top in (_FIXTURES, _FIXTURES / "frameworks"):
        for folder in sorted(path.parent for path in top.glob("*/dumps")):
            parts = [str(p) for name in ("dumps", "logs", "stacks") if (p := folder / name).exists()]
            for paths in [parts, *([part] for part in parts if len(parts) > 1)]:
                yield from read(paths)
    for excerpt in sorted((_FIXTURES / "text").iterdir()):
        if excerpt.is_dir() or excerpt.suffix == ".txt":
            yield from read([str(excerpt)])
    for fault in FAULTS if per_fault else ():
        for seed in range(per_fault):
            left = Remains(simulate(fault, seed))
            for way in WAYS:
                with tempfile.TemporaryDirectory() as kept:
                    left.write(Path(kept), collect(left, way))
                    yield from read([kept])


def judged(incident: Any, notes: list[Any]) -> str:
    """Return all that is said of an incident, or what went wrong."""
    from hangscope.analysis import analyse

    incident.notes[:] = notes
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        return repr(analyse(incident).judgement)
    except (Exception, _Over) as error:
        return type(error).__name__
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def used(run: Callable[[], Any]) -> tuple[Any, list[int]]:
    """Return what a run returns, and the numbers of the switches that did something in it."""
    for switch in SWITCHES:
        switch.used = False
    result = run()
    return result, [number for number, switch in enumerate(SWITCHES) if switch.used]


class _Loop:
    """Takes the place of pytest's loop: tries every switch on the incidents, then on the tests."""

    def __init__(self, incidents: list[tuple[Any, list[Any]]], jobs: int) -> None:
        self.incidents, self.jobs = incidents, jobs
        self.said: list[str] = []
        self.by_incident: dict[int, list[int]] = {}
        self.by_test: dict[int, list[int]] = {}
        self.items: list[pytest.Item] = []
        self.missed: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self.items = session.items
        for place, (incident, notes) in enumerate(self.incidents):
            said, numbers = used(partial(judged, incident, notes))
            self.said.append(said)
            for number in numbers:
                self.by_incident.setdefault(number, []).append(place)
        for place in range(len(self.items)):
            failed, numbers = used(partial(self._fails, place))
            for number in numbers if not failed else ():
                self.by_test.setdefault(number, []).append(place)
        with multiprocessing.get_context("fork").Pool(self.jobs) as pool:
            self.missed = pool.map(_by_whom, range(len(SWITCHES)), chunksize=4)
        return True

    def by_whom(self, number: int) -> str:
        """Return by what a switch is missed: incidents, tests, or nothing."""
        places = self.by_incident.get(number, [])
        SWITCHES[number].off = True
        try:
            for place in random.Random(number).sample(places, min(len(places), INCIDENTS)):
                if judged(*self.incidents[place]) != self.said[place]:
                    return "incidents"
            tests = self.by_test.get(number, [])[:RUNS]
            return "tests" if any(self._fails(place) for place in tests) else ""
        finally:
            SWITCHES[number].off = False

    def _fails(self, place: int) -> bool:
        signal.setitimer(signal.ITIMER_REAL, TEST_SECONDS)
        try:
            item = self.items[place]
            return any(report.failed for report in runtestprotocol(item, log=False, nextitem=None))
        except _Over:
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)


_RUNNING: list[_Loop] = []  # what the forked children find


def _by_whom(number: int) -> str:
    return _RUNNING[0].by_whom(number)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--room", action="append", choices=ROOMS, help="this room only; may be given several times"
    )
    parser.add_argument("--file", action="append", help="this file only (hangscope/align/roots.py)")
    parser.add_argument(
        "--per-fault", type=int, default=1, help="simulated jobs per fault, each in every way"
    )
    parser.add_argument("--incidents", type=int, help="no more incidents than these, drawn")
    parser.add_argument("--tests", nargs="*", default=TESTS, help="tests that may miss a switch")
    parser.add_argument("--jobs", type=int, choices=(1, 2), default=2, help="processes")
    options = parser.parse_args()
    wanted = options.file or [f"hangscope/{room}/" for room in options.room or ROOMS]
    sys.meta_path.insert(0, Finder(wanted))
    signal.signal(signal.SIGALRM, _stop)
    for start in wanted:
        for path in sorted((ROOT / start).rglob("*.py")) if start.endswith("/") else [ROOT / start]:
            if path.name != "__init__.py":
                import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
    incidents = list(bank(options.per_fault))
    if options.incidents is not None and len(incidents) > options.incidents:
        incidents = random.Random(0).sample(incidents, options.incidents)
    _RUNNING.append(_Loop(incidents, options.jobs))
    arguments = ["-s", "-o", "addopts=", "-p", "no:cacheprovider", "-p", "no:terminal", *options.tests]
    code = pytest.main([str(a) for a in arguments], plugins=[_RUNNING[0]])
    missed = _RUNNING[0].missed
    if len(missed) < len(SWITCHES):
        print(f"the tests cannot be run: pytest ended with {code}", file=sys.stderr)
        return 1
    print(
        f"{len(SWITCHES)} branches and functions, {len(incidents)} incidents, {len(_RUNNING[0].items)} tests: "
        f"{missed.count('incidents')} are missed by incidents, {missed.count('tests')} by tests alone, "
        f"{missed.count('')} by nothing"
    )
    for switch in (s for s, by in zip(SWITCHES, missed, strict=True) if not by):
        print(f"{switch.place}: {switch.what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
