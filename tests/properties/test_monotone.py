"""More evidence never makes a right name a wrong one: one file taken away, or added.

Each incident is analyzed as it is and once without each of some of its files. Read one way a pair is a loss, read the other
way a gain; in neither may the right name turn into an innocent's.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.properties.incidents import (
    CAPTURED,
    SIMULATED,
    Right,
    Said,
    captured,
    files_of,
    right_of,
    said_of,
    simulated,
)
from tests.simulator import Remains, collect, least_size, simulate

#: how many files are taken away of each incident, one at a time
FILES = 2


@dataclass(frozen=True)
class Pair:
    """What is said with a file and without it."""

    incident: str
    file: str
    whole: Said
    without: Said

    def spoiled(self, right: Right, *words: str) -> bool:
        """Return whether either turns the other's right name into a wrong one, said with one of these words."""
        for one, other in ((self.whole, self.without), (self.without, self.whole)):
            if right.names(one) and right.denies(other) and other.confidence in words:
                return True
        return False


def pairs_of(incident: str, folder: Path) -> Iterator[Pair]:
    """Yield a pair for some of the files of an incident."""
    whole = said_of(folder)
    files = files_of(folder)
    aside = folder.with_name(folder.name + ".aside")
    for path in random.Random(incident).sample(files, min(FILES, len(files))):
        path.rename(aside)
        yield Pair(incident, str(path.relative_to(folder)), whole, said_of(folder))
        aside.rename(path)


def check(pairs: list[tuple[Pair, Right]]) -> None:
    assert pairs
    assert not [pair for pair, right in pairs if pair.spoiled(right, "high")]
    medium = [pair for pair, right in pairs if pair.spoiled(right, "medium")]
    assert len(medium) * 100 <= len(pairs), medium


@pytest.mark.parametrize(
    ("way", "incidents"), [("full", SIMULATED[::2]), ("logs and two victims' dumps", SIMULATED[1::2])]
)
def test_one_file_of_a_simulated_incident(way: str, incidents: list[tuple[str, int]]) -> None:
    pairs = []
    for fault, seed in incidents:
        with simulated(fault, seed, way) as (folder, right):
            pairs += [(pair, right) for pair in pairs_of(f"{fault}-{seed}", folder)]
    check(pairs)


def test_one_file_of_a_captured_incident() -> None:
    pairs = []
    for incident in CAPTURED:
        right = right_of(incident / "truth.json")
        with captured(incident) as folder:
            pairs += [(pair, right) for pair in pairs_of(incident.name, folder)]
    check(pairs)


def test_two_victims_dumps_beside_all_logs_are_no_worse_than_the_logs_alone(tmp_path: Path) -> None:
    alone = together = 0
    pairs = []
    for fault, seed in SIMULATED:
        left = Remains(simulate(fault, seed + 1, world_size=least_size(fault)))
        right = Right(tuple(map(frozenset, left.job.truth.answers or [left.job.truth.culprits])))
        said = []
        for way in ("logs only", "logs and two victims' dumps"):
            folder = tmp_path / f"{fault}-{way}"
            folder.mkdir()
            left.write(folder, collect(left, way))
            said.append(said_of(folder))
        alone += right.names(said[0])
        together += right.names(said[1])
        pairs.append((Pair(fault, "two dumps", said[1], said[0]), right))
    assert together >= alone
    check(pairs)
