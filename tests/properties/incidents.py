"""Incidents with known answers, captured and simulated, and what the analyzer says of them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from hangscope.errors import NoInputError
from tests.conftest import FIXTURES, INCIDENTS, analyze
from tests.simulator import FAULTS, Remains, collect, least_size, simulate

SIMULATED = [(fault, 7000) for fault in FAULTS]
CAPTURED = sorted(path.parent for path in FIXTURES.glob("*/truth.json"))
FRAMEWORKS = sorted(path.parent for path in INCIDENTS.glob("frameworks/*/truth.json"))


@dataclass(frozen=True)
class Said:
    """A verdict in short."""

    status: str
    ranks: tuple[int, ...] = ()
    op: str | None = None
    seq: int | None = None
    cause: str | None = None
    confidence: str | None = None


@dataclass(frozen=True)
class Right:
    """What is right: any of these sets of ranks."""

    answers: tuple[frozenset[int], ...]

    def names(self, said: Said) -> bool:
        """Return whether the right ranks are named."""
        return bool(said.ranks) and frozenset(said.ranks) in self.answers

    def denies(self, said: Said) -> bool:
        """Return whether an innocent is named."""
        return any(all(rank not in answer for answer in self.answers) for rank in said.ranks)


def said_of(path: Path) -> Said:
    """Analyze a folder."""
    try:
        report = analyze(str(path))
    except NoInputError:
        return Said("nothing to read")
    v = report.verdict
    if v is None:
        return Said(report.status)
    return Said(report.status, tuple(sorted(v.culprit_ranks)), v.op, v.seq, v.cause, v.confidence)


def right_of(truth: Path) -> Right:
    """Read a truth.json."""
    told = json.loads(truth.read_text())
    return Right(tuple(frozenset(answer) for answer in told.get("answers") or [told["culprits"]]))


@contextmanager
def captured(incident: Path, *folders: str) -> Iterator[Path]:
    """Yield a copy of what a captured job left."""
    with TemporaryDirectory() as scratch:
        for folder in folders or ("dumps",):
            shutil.copytree(incident / folder, Path(scratch) / "incident" / folder)
        yield Path(scratch) / "incident"


@contextmanager
def simulated(fault: str, seed: int, way: str = "full") -> Iterator[tuple[Path, Right]]:
    """Yield what a simulated job left and somebody collected."""
    left = Remains(simulate(fault, seed, world_size=least_size(fault)))
    kept = collect(left, way)
    truth = left.truth(kept)
    with TemporaryDirectory() as scratch:
        left.write(Path(scratch), kept)
        yield Path(scratch), Right(tuple(map(frozenset, truth.answers or [truth.culprits])))


def files_of(folder: Path) -> list[Path]:
    """Return the files of a folder that hold anything."""
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
