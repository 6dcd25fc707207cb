"""The excerpts of `fixtures/text`: enough of each form, truths that state only what the text proves, and the score."""

from __future__ import annotations

import importlib.util
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from hangscope.knowledge.catalog import CATALOG

pytestmark = pytest.mark.slow

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def text_score() -> ModuleType:
    spec = importlib.util.spec_from_file_location("text_score", BENCHMARKS / "text_score.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["text_score"] = module
    spec.loader.exec_module(module)
    return module


def test_there_are_enough_of_each_form(text_score: ModuleType) -> None:
    excerpts = text_score.excerpts()
    forms = Counter(excerpt.form for excerpt in excerpts)
    harmless = [excerpt for excerpt in excerpts if "no_hang" in excerpt.status]
    assert len(excerpts) >= 80
    assert min(forms.values()) >= 2
    assert len(harmless) * 10 >= len(excerpts)
    assert sum(excerpt.apart for excerpt in excerpts) * 4 >= len(excerpts)


def test_truths_are_well_formed(text_score: ModuleType) -> None:
    for excerpt in text_score.excerpts():
        assert excerpt.path.exists(), excerpt.name
        assert set(excerpt.status) <= {"hang", "no_hang", "inconclusive"}, excerpt.name
        assert set(excerpt.causes) - {None} <= set(CATALOG), excerpt.name
    files = {path.stem if path.is_file() else path.name for path in text_score.FOLDER.iterdir()}
    assert files - {"README", "truths"} == {excerpt.name for excerpt in text_score.excerpts()}


def test_answers_are_useful_and_name_nobody_wrongly(text_score: ModuleType) -> None:
    answers = [
        text_score.ask(excerpt) for excerpt in text_score.excerpts()[::8]
    ]  # the corpus has the others' like
    assert not [answer.told() for answer in answers if answer.wrong]
    missed = [answer.told() for answer in answers if not answer.useful]
    assert len(missed) * 10 <= len(answers), missed
