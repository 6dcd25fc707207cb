"""The reports of the corpus: one for each question that `benchmarks/corpus.py` asks."""

from __future__ import annotations

import sys
import tarfile
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import hangscope
from hangscope.api import Report
from hangscope.errors import NoInputError
from tests.conftest import FIXTURES
from tests.in_thread import InThisThread

sys.path.insert(0, str(FIXTURES.parent / "benchmarks"))


def corpus_reports(name: str, step: int = 1) -> Iterator[tuple[str, Report]]:
    """Yield a key and the report for every question of one set, or every `step`-th."""
    from corpus import Set
    from corpus_answers import INPUTS, Truth

    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(FIXTURES / "corpus" / f"{name}.tar.xz") as archive:
            archive.extractall(scratch, filter="data")
        for key, incident, asked in islice(Set(name, {}, Path(scratch)).questions(), 0, None, step):
            if asked in Truth.read(incident / "truth.json").skip_inputs:
                continue
            paths = [f"{incident}/{folder}" for folder in INPUTS[asked]]
            try:
                yield key, hangscope.analyze(paths, executor=InThisThread())
            except NoInputError:
                continue
