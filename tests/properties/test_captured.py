"""What holds of every captured job: its own names decide nothing, and neither does one file of it."""

from __future__ import annotations

import json
import random
from functools import lru_cache
from pathlib import Path

import pytest

from hangscope.api import Report
from tests.conftest import FIXTURES, analyze
from tests.properties.incidents import Right, copied, essence, inside, pairs_of, renamed, said_in, said_of
from tests.properties.renaming import MISLEADING, NEUTRAL

#: a spread of them: with two names, two files and a victim each takes seconds
CAPTURED = sorted(path.parent for path in FIXTURES.glob("*/truth.json"))[::4]
FRAMEWORKS = sorted(path.parent for path in FIXTURES.glob("frameworks/*/truth.json"))


@pytest.fixture(scope="module", params=CAPTURED, ids=lambda incident: incident.name)
def incident(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


@lru_cache(maxsize=1)
def report_on(incident: Path) -> Report:
    """Return the report on what a captured job left; the tests of one incident share it."""
    return analyze(incident / "dumps")


@pytest.mark.parametrize("words", [NEUTRAL, MISLEADING], ids=["neutral", "misleading"])
def test_the_users_names_decide_nothing(incident: Path, words: tuple[str, ...]) -> None:
    with renamed(incident, words, "dumps") as folder:
        assert said_of(folder / "dumps").core == said_in(report_on(incident)).core


@pytest.mark.parametrize("incident", FRAMEWORKS[::7], ids=lambda incident: incident.name)
@pytest.mark.parametrize("words", [NEUTRAL, MISLEADING], ids=["neutral", "misleading"])
def test_the_users_names_decide_nothing_beside_those_of_a_library(
    incident: Path, words: tuple[str, ...]
) -> None:
    plain = said_of(incident / "dumps", incident / "logs").core
    with renamed(incident, words, "dumps", "logs") as folder:
        assert said_of(folder / "dumps", folder / "logs").core == plain


def test_one_file_more_makes_no_right_name_a_wrong_one(incident: Path) -> None:
    truth = json.loads((incident / "truth.json").read_text())
    right = Right(tuple(map(frozenset, truth.get("answers") or [truth["culprits"]])))
    with copied(incident, "dumps") as folder:
        for pair in pairs_of(incident.name, folder, said_in(report_on(incident))):
            assert not pair.spoils(right), pair


def test_a_lost_dump_of_a_victim_changes_no_blame(incident: Path) -> None:
    whole = report_on(incident)
    if whole.verdict is None or not whole.verdict.culprit_ranks:
        pytest.skip("nobody is to blame")
    dumped = {int(p.name.rpartition("_")[2]): p for p in (incident / "dumps" / "recorder").iterdir()}
    victims = [
        rank
        for rank in sorted(dumped)
        if rank not in whole.verdict.culprit_ranks and len(inside(whole) - {rank}) >= 2
    ]
    if not victims:
        pytest.skip("none could be spared")
    lost = dumped[random.Random(incident.name).choice(victims)]
    files = sorted(p for p in (incident / "dumps").rglob("*") if p.is_file() and p != lost)
    less = analyze(files, world_size=whole.to_dict()["world_size"])
    # An extra call at the end of a loop leaves the same record as a loop that is over: either may be the cause.
    assert without_cause(less) == without_cause(whole), lost.name


def without_cause(report: Report) -> tuple[object, ...]:
    status, *rest = essence(report)
    return (status, *rest[1:])
