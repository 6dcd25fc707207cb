"""The order of the rules holds every rule, and what a verdict needs is told of every cause."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator

import hangscope.causes
from hangscope.causes.rules import RULES
from hangscope.knowledge.catalog import CATALOG


def written() -> Iterator[object]:
    """Yield the public functions of the families that take a case and answer with a match or nothing."""
    for module in pkgutil.walk_packages(hangscope.causes.__path__, "hangscope.causes."):
        for name, function in inspect.getmembers(importlib.import_module(module.name), inspect.isfunction):
            hints = function.__annotations__
            takes_a_case = [hint for part, hint in hints.items() if part != "return"] == ["Case"]
            if takes_a_case and hints["return"] == "Match | None" and not name.startswith("_"):
                yield function


def test_every_rule_is_asked_once() -> None:
    rules = [rule for _, rule in RULES]
    assert len(set(rules)) == len(rules)
    assert set(written()) == set(rules)


def test_rules_say_what_they_look_for() -> None:
    assert all(rule.__doc__ and next(iter(inspect.signature(rule).parameters)) == "case" for _, rule in RULES)


def test_every_cause_says_what_would_decide() -> None:
    assert all(entry.would_decide and entry.fix and entry.does_not for entry in CATALOG.values())
