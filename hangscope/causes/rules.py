"""The rules in the order in which they are asked; the first answer is the verdict, later ones are its alternatives."""

from __future__ import annotations

from importlib import import_module

from hangscope.causes.case import Case, Match, Rule
from hangscope.errors import Note
from hangscope.knowledge.catalog import ORDER

RULES: tuple[Rule, ...] = tuple(
    getattr(import_module(f"hangscope.causes.{family}"), name)
    for family, _, name in (place.rpartition(".") for place in ORDER)
)


def match_all(case: Case, notes: list[Note]) -> list[Match]:
    """Return every rule's answer in order; a rule that fails becomes a note and the rest go on."""
    found = []
    for rule in RULES:
        try:
            match = rule(case)
        except Exception as error:
            why = f"the rule {rule.__name__} failed: {type(error).__name__}: {error}"
            notes.append(Note("rule_failed", why, hint="please report this"))
            continue
        if match is not None:
            found.append(match)
    return found
