"""The words of the page that a reader may not know: shown where they first occur, and listed at the end of the page."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from hangscope.knowledge.catalog import CATALOG
from hangscope.model.tables import tomllib
from hangscope.report.schema.document import Document


@cache
def words() -> dict[str, str]:
    """Return all words and what they mean."""
    return {**_table()["words"], **_table()["stall"]}


def glossary(document: Document) -> dict[str, str]:
    """Return the words that a page uses; where nothing is stuck, those of a stall are not among them."""
    used = words() if document.status != "no_hang" else _table()["words"]
    return dict(sorted(used.items(), key=lambda item: item[0].lower()))


@cache
def _table() -> dict[str, dict[str, str]]:
    return tomllib.loads(Path(__file__).with_name("glossary.toml").read_text("utf-8"))


def causes(document: Document) -> tuple[tuple[str, str], ...]:
    """Return the causes that a page names, each with what it means."""
    verdict = document.verdict
    named = [verdict.cause] if verdict is not None else []
    named += [h.cause for h in document.hypotheses]
    named += [a.cause for a in verdict.alternatives] if verdict is not None else []
    return tuple((cause, CATALOG[cause].means) for cause in dict.fromkeys(named) if cause in CATALOG)
