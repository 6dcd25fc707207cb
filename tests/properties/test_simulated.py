"""What holds of a simulated job of every fault, however it was collected: each is run once and asked in several ways."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.properties.incidents import Pair, Right, Said, pairs_of, renamed, said_of
from tests.properties.renaming import MISLEADING, NEUTRAL
from tests.simulator import FAULTS, Remains, collect, least_size, simulate

SEED = 7000
LOGS, TWO_DUMPS = "logs only", "logs and two victims' dumps"
#: a spread of them; the corpus has the others
SOME = list(FAULTS)[::4]
GUESSED = {"slow_rank"}  # by the logs, in which a rank that comes late looks like one that has left


class Job:
    """A job that has frozen, and what is said of it by the way in which it was collected."""

    def __init__(self, fault: str, folder: Path) -> None:
        self.fault = fault
        self._left = Remains(simulate(fault, SEED, world_size=least_size(fault)))
        self._folder = folder
        self._said: dict[str, Said] = {}

    def right(self, way: str) -> Right:
        """Return what is right to say of what was collected."""
        truth = self._left.truth(collect(self._left, way))
        return Right(tuple(map(frozenset, truth.answers or [truth.culprits])))

    def folder(self, way: str) -> Path:
        """Return a folder with what was collected."""
        path = self._folder / way.replace(" ", "_").replace("'", "")
        if not path.exists():
            path.mkdir()
            self._left.write(path, collect(self._left, way))
        return path

    def said(self, way: str) -> Said:
        """Return what is said of that."""
        if way not in self._said:
            self._said[way] = said_of(self.folder(way))
        return self._said[way]


@pytest.fixture(scope="module", params=SOME)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    return Job(request.param, tmp_path_factory.mktemp("job"))


@pytest.mark.parametrize(("way", "words"), [("full", MISLEADING), (LOGS, NEUTRAL)])
def test_the_users_names_decide_nothing(job: Job, way: str, words: tuple[str, ...]) -> None:
    with renamed(job.folder(way), words) as folder:
        assert said_of(folder).core == job.said(way).core


def test_one_file_more_makes_no_right_name_a_wrong_one(job: Job) -> None:
    way = ("full", TWO_DUMPS)[SOME.index(job.fault) % 2]
    right = job.right(way)
    for pair in pairs_of(job.fault, job.folder(way), job.said(way)):
        assert not pair.spoils(right), pair


def test_two_victims_dumps_beside_all_logs_are_no_worse_than_the_logs_alone(job: Job) -> None:
    right, logs, together = job.right(TWO_DUMPS), job.said(LOGS), job.said(TWO_DUMPS)
    assert not Pair("two dumps", together, logs).spoils(right)
    assert right.names(together) or not right.names(logs) or job.fault in GUESSED
