"""A verdict in plain sentences: its title, its summary and its explanation, each within the length that the contract gives it.

Whoever makes a verdict states facts; the sentences are put together here. A part that does not fit is left out whole, the
last first, so that no sentence is cut in the middle.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.conclusion import Verdict
from hangscope.knowledge.catalog import CATALOG
from hangscope.rankset import ranks_phrase

TITLE, SUMMARY, EXPLANATION = 80, 240, 900
_BREAKS = ("; ", ": ", ", ", " (")


def worded(verdict: Verdict, why: str) -> Verdict:
    """Return a verdict with its title and its explanation; `why` says who did what, as a clause."""
    return replace(
        verdict,
        title=title(verdict, why),
        summary=fitting([verdict.summary.rstrip(".")], SUMMARY) + ".",
        explanation=explanation(verdict),
    )


def title(verdict: Verdict, why: str) -> str:
    """Return who did what and where, in at most 80 characters: `Rank 3 skipped all_reduce (train.py:87)`."""
    at = verdict.location
    place = f" ({at.file.rsplit('/', 1)[-1]}:{at.line})" if at is not None else ""
    claim = sentence_case(why.rstrip("."))
    if place and place.strip(" ()") not in claim and len(claim) + len(place) <= TITLE:
        return claim + place
    short = fitting([claim], TITLE)
    if len(short) > 20:
        return short
    who = ranks_phrase(verdict.culprit_ranks) + ": " if verdict.culprit_ranks else ""
    return sentence_case(who + CATALOG[verdict.cause].title)[:TITLE]


def explanation(verdict: Verdict) -> str:
    """Return what the evidence shows, what that means and what to do next, in at most 900 characters."""
    facts = [
        verdict.evidence[i] for i in verdict.deciding[:2] if verdict.evidence[i].text not in verdict.summary
    ]
    sentences = [verdict.summary, *(fact.text for fact in facts)]
    nexts = [item.text for item in verdict.collect[:1]] if verdict.confidence == "low" else []
    sentences += [*nexts, *verdict.advice[:1]][:1]
    return fitting(map(as_sentence, sentences), EXPLANATION, " ")


def fitting(parts: Iterable[str], limit: int, joint: str = "; ") -> str:
    """Return the parts joined, without those that no longer fit; of the first as many clauses as fit."""
    found = ""
    for part in parts:
        longer = f"{found}{joint}{part}" if found else _clauses(part, limit)
        found = longer if len(longer) <= limit else found
    return found


def _clauses(text: str, limit: int) -> str:
    """Return a text that fits: cut before one of its clauses, else between two words, with a mark."""
    if len(text) <= limit:
        return text
    ends = [place for mark in _BREAKS if (place := text.rfind(mark, 20, limit)) > 0]
    return text[: max(ends)] if ends else text[: limit - 1].rsplit(" ", 1)[0] + "…"


def sentence_case(text: str) -> str:
    """Return a text that begins with a capital, unless its first word is a name of code."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].isalpha() else text


def as_sentence(text: str) -> str:
    """Return a text as a sentence, with a capital and a full stop."""
    return sentence_case(text.strip()).rstrip(".") + "."
