"""A verdict in plain sentences: its title, its summary and its explanation, each within the length that the contract gives it.

Who makes a verdict states facts (`claims.py`); the sentences are put together here. A part that does not fit is left out
whole, the last first, so that no sentence ends in the middle. Helpers for new sentences: `rankset.ranks_phrase` and
`rankset.agree` for ranks and their verbs, `as_sentence` for the capital and the full stop, `fitting` for a limit.

`worded(verdict, act, blocked)` makes all three texts. To say more in an explanation, put the fact first among the verdict's
`deciding` evidence (its text is quoted), or the next step first in `collect`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from hangscope.conclusion import Verdict
from hangscope.knowledge.catalog import CATALOG
from hangscope.rankset import ranks_phrase
from hangscope.regex import regex
from hangscope.verdict.claims import Act, Blocked

TITLE, SUMMARY, EXPLANATION = 80, 240, 900
_SHOWN = 190  # of a quoted fact
_NO_TITLE = 12  # characters that say nothing yet
_BREAKS = ("; ", ": ", ", ", " while ", " (")
_SIZES = regex(r"\((?:\[[\d, ]*\][, ]*)+\w*\)")


def worded(verdict: Verdict, act: Act, blocked: Blocked) -> Verdict:
    """Return a verdict with its title, its summary and its explanation."""
    claim = sentence_case(act.phrase().rstrip("."))
    found = replace(
        verdict,
        title=title(verdict, act),
        summary=fitting([claim, blocked.phrase()], SUMMARY - 1).rstrip(" ,;:") + ".",
    )
    return replace(found, explanation=explanation(found, claim, blocked))


def title(verdict: Verdict, act: Act) -> str:
    """Return who did what and where, in at most 80 characters: `Rank 3 skipped all_reduce (train.py:87)`."""
    claim = sentence_case(act.what.rstrip("."))
    named = act.place and act.place.strip(" ()") not in claim
    for text in (claim, _SIZES.sub("", claim)):
        if named and len(text) + len(act.place) <= TITLE:
            return text + act.place
        if len(text) <= TITLE:
            return text
    short = clauses(_SIZES.sub("", claim), TITLE - (len(act.place) if named else 0))
    if not short.endswith("…"):
        return short + (act.place if named else "")
    who = ranks_phrase(verdict.culprit_ranks) + ": " if verdict.culprit_ranks else ""
    return clauses(sentence_case(who + CATALOG[verdict.cause].title), TITLE)


def explanation(verdict: Verdict, claim: str, blocked: Blocked) -> str:
    """Return what the evidence shows, what that means and what to do next, in at most 900 characters."""
    shown = (verdict.evidence[i] for i in verdict.deciding[:2])
    facts = [cited(fact.text) for fact in shown if fact.text.lower() not in claim.lower()]
    steps = [*(item.text for item in verdict.collect[:1] if verdict.confidence == "low"), *verdict.advice[:1]]
    start = fitting([claim, blocked.phrase()], EXPLANATION // 2)
    return fitting(map(as_sentence, (start, *facts, *suspects(verdict), *steps[:1])), EXPLANATION, " ")


def suspects(verdict: Verdict) -> list[str]:
    """Return who to look at where nobody is named for certain, as a sentence, or nothing."""
    others = [r for r in verdict.suspect_ranks if r not in verdict.culprit_ranks]
    if not others or len(verdict.suspect_ranks) > max(8, len(verdict.waiting_ranks)):
        return []
    return [f"The root cause is among {ranks_phrase(verdict.suspect_ranks)}"]


def cited(text: str) -> str:
    """Return a fact as short as an explanation quotes it, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else line[: _SHOWN - 1].rsplit(" ", 1)[0] + "…"


def fitting(parts: Iterable[str], limit: int, joint: str = "; ") -> str:
    """Return the parts joined, without those that no longer fit; of the first as many clauses as fit."""
    found = ""
    for part in filter(None, parts):
        longer = f"{found}{joint}{part}" if found else clauses(part, limit)
        found = longer if len(longer) <= limit else found
    return found


def clauses(text: str, limit: int) -> str:
    """Return a text that fits: cut before one of its clauses, else between two words, with a mark."""
    if len(text) <= limit:
        return text
    ends = [text.rfind(mark, _NO_TITLE, limit) for mark in _BREAKS]
    whole = [end for end in ends if end > 0 and text.count("(", 0, end) == text.count(")", 0, end)]
    return text[: max(whole)] if whole else text[: limit - 1].rsplit(" ", 1)[0] + "…"


def sentence_case(text: str) -> str:
    """Return a text that begins with a capital, unless its first word is a name of code."""
    return text[:1].upper() + text[1:] if text.split(" ")[0].rstrip(",.;:'").isalpha() else text


def as_sentence(text: str) -> str:
    """Return a text as a sentence, with a capital and a full stop."""
    text = sentence_case(text.strip())
    return text if text.endswith((".", "!", "?", "…", ".)")) else text + "."
