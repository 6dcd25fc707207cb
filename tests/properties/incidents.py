"""Incidents with known answers, captured and simulated, and what the analyzer says of them."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hangscope.api import Report
from hangscope.errors import NoInputError
from tests.conftest import analyze
from tests.properties.renaming import rename

#: how many files are taken away of each incident, one at a time
FILES = 2


@dataclass(frozen=True)
class Said:
    """A verdict in short."""

    status: str
    ranks: tuple[int, ...] = ()
    op: str | None = None
    seq: int | None = None
    cause: str | None = None
    confidence: str | None = None

    @property
    def core(self) -> Said:
        """Return the same but for the confidence."""
        return replace(self, confidence=None)


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


def said_of(*paths: Path) -> Said:
    """Analyze some folders together."""
    try:
        return said_in(analyze([str(path) for path in paths]))
    except NoInputError:
        return Said("nothing to read")


def said_in(report: Report) -> Said:
    """Return the verdict of a report in short."""
    v = report.verdict
    if v is None:
        return Said(report.status)
    return Said(report.status, tuple(sorted(v.culprit_ranks)), v.op, v.seq, v.cause, v.confidence)


@dataclass(frozen=True)
class Pair:
    """What is said with a file and without it."""

    file: str
    whole: Said
    without: Said

    def spoils(self, right: Right) -> bool:
        """Return whether either turns the other's right name into a wrong one, and says so with some certainty."""
        return any(
            right.names(one) and right.denies(other) and other.confidence in ("high", "medium")
            for one, other in ((self.whole, self.without), (self.without, self.whole))
        )


def pairs_of(incident: str, folder: Path, whole: Said) -> Iterator[Pair]:
    """Yield a pair for some of the files of an incident, each taken away and put back."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.stat().st_size)
    aside = folder.with_name(folder.name + ".aside")
    for path in random.Random(incident).sample(files, min(FILES, len(files))):
        path.rename(aside)
        try:
            yield Pair(str(path.relative_to(folder)), whole, said_of(folder))
        finally:
            aside.rename(path)


@contextmanager
def copied(incident: Path, *folders: str) -> Iterator[Path]:
    """Yield a copy of an incident, or of some of its folders."""
    with TemporaryDirectory() as scratch:
        copy = Path(scratch) / "incident"
        for name in folders or (".",):
            shutil.copytree(incident / name, copy / name, dirs_exist_ok=True)
        yield copy


@contextmanager
def renamed(incident: Path, words: tuple[str, ...], *folders: str) -> Iterator[Path]:
    """Yield such a copy in which the user's frames have other names."""
    with copied(incident, *folders) as copy:
        rename(copy, words)
        yield copy


def essence(report: Report) -> tuple[Any, ...]:
    """Return what must stay even where a victim's dump is lost."""
    v = report.verdict
    return (report.status,) if v is None else (report.status, v.cause, v.culprit_ranks, v.op, v.seq)


def inside(report: Report) -> set[int]:
    """Return the seen ranks that wait in the very call that the verdict names."""
    v = report.verdict
    if v is None or v.group is None or v.seq is None:
        return set()
    rows = report.table[
        (report.table["group"] == v.group.label)
        & (report.table["seq"] == v.seq)
        & (report.table["state"] != "done")
    ]
    return set(map(int, rows["rank"])) - set(v.culprit_ranks)
