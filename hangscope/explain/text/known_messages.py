"""Sentences with placeholders, filled with what the lines of all ranks say."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from hangscope.ingest.job_logs.messages import Message
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex

_PART = regex(r"\[([^\[\]]{1,120})\]")
_BLANK = regex(r"\{(\w{1,40})\}")
_SUBJECT = regex(r"\b(pod|node|GPU|rank|job) \{(\w{1,40})\}( (?:is|was|has|does)\b)?")
_PLURAL = {" is": " are", " was": " were", " has": " have", " does": " do"}


def blanks_of(events: Sequence[Message]) -> Mapping[str, str]:
    """Return what fills each placeholder: the different values of all lines; `who` are the ranks that printed them."""
    values: dict[str, list[str]] = defaultdict(list)
    for event in events:
        for name, text in event.values:
            values[name].append(text)
    found = {name: listed(texts) for name, texts in values.items()}
    if "seconds" in values:
        found["seconds"] = max(values["seconds"], key=lambda text: (len(text), text))
    ranks = sorted({e.rank for e in events if e.rank is not None})
    names = [e.process for e in events if e.process]
    named = f" ({listed(names)})" if names and ranks else ""
    found["who"] = ranks_phrase(ranks) + named if ranks else listed(names) or "a process"
    return found


def filled(text: str, blanks: Mapping[str, str]) -> str:
    """Return a sentence with its placeholders filled, what has several names in the plural, without parts in brackets that have no value."""

    def part(inner: str) -> str:
        return inner if all(name in blanks for name in _BLANK.findall(inner)) else ""

    def agreeing(match: re.Match[str]) -> str:
        if not regex(r" and | more$").search(blanks.get(match[2], "")):
            return match[0]
        return f"{match[1]}s {{{match[2]}}}{_PLURAL.get(match[3], '')}"

    whole = _SUBJECT.sub(agreeing, _PART.sub(lambda match: part(match[1]), text))
    return _BLANK.sub(lambda match: blanks.get(match[1], "?"), whole)


def listed(words: Iterable[str], most: int = 6) -> str:
    """Return different words in the order of their numbers, `a, b and c`; of many the first ones and how many more there are."""
    found = sorted(set(words), key=lambda word: (len(word), word))
    shown, more = found[:most], len(found) - most
    if more > 0:
        return f"{', '.join(shown)} and {more} more"
    return " and ".join([", ".join(shown[:-1]), shown[-1]]) if len(shown) > 1 else "".join(shown)
