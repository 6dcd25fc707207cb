"""Words and phrases by which lines without a form of their own are recognised: the stages of a job's life, and what people wrote.

They are data, in knowledge/lines/words.toml and knowledge/stages/stages.toml.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.model.tables import entries

_NAMED = regex(r"(?<!P)<([a-z_0-9]+)>")
_SETTINGS = 4  # of a line: `name=value`
_PROSE = 8  # words
_SENTENCE = regex(r"[a-z]{2}[.,!?;](?: |$)")
_SENTENCES = regex(r"[^.!?\n。！？]{1,400}[.!?。！？]?")
_CJK = regex(r"[\u4e00-\u9fff]{4}")


@cache
def words(name: str) -> re.Pattern[str]:
    """Return the pattern that finds any of the words of an entry."""
    return re.compile(expressions()[name])


@cache
def expressions() -> Mapping[str, str]:
    """Return the regular expression of each entry."""
    found = dict[str, str]()
    for entry in entries("lines/words.toml", "words"):
        before, after = entry.get("around", ("", ""))
        pattern = f"{before}{'|'.join(entry['any'])}{after}"
        found[entry["name"]] = _NAMED.sub(lambda name: f"(?:{found[name[1]]})", pattern)
    return found


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of a job's life: the words that show it, and what to collect where a text ends in it (`what`: log or stack)."""

    name: str
    words: tuple[re.Pattern[str], ...]
    phrase: str
    collect: str
    what: str


@cache
def stages() -> tuple[Stage, ...]:
    """Return the stages in the order of a job's life."""
    found = entries("stages/stages.toml", "stage")
    return tuple(Stage(**{**stage, "words": tuple(map(regex, stage["words"]))}) for stage in found)


def stage_named(name: str) -> Stage | None:
    """Return a stage by its name, None where there is none of that name."""
    return next((stage for stage in stages() if stage.name == name), None)


def stage_of_line(text: str) -> Stage | None:
    """Return the latest stage whose words a line holds; a command starts a job, and settings show nothing that happens."""
    if text.count("=") > _SETTINGS:
        return None
    if words("command").match(text):
        return stages()[0] if any(word.search(text) for word in stages()[0].words) else None
    return next((s for s in reversed(stages()) if any(word.search(text) for word in s.words)), None)


def of_people(text: str) -> bool:
    """Return whether a line is a sentence that no program prints."""
    return len(text.split()) >= _PROSE and not words("logged").search(text) and bool(_SENTENCE.search(text))


_WHY = regex(r"(?i)\bwhy (?:do|does|did|is|are)\b")


def states_a_hang(text: str) -> bool:
    """Return whether a sentence of a person's text states that the job hangs: no question, and no doubt."""
    return any(
        words("says_it_hangs").search(sentence) and not words("doubts").search(sentence)
        for sentence in statements_of(text)
    )


def statements_of(text: str) -> list[str]:
    """Return the sentences of a text that are no questions, with those that ask why: they state what they ask about."""
    return [
        sentence
        for sentence in _SENTENCES.findall(text)
        if sentence[-1:] not in "?？" or _WHY.search(sentence)
    ]


def complains(text: str) -> bool:
    """Return whether a line is what a reporter writes of a job that hangs, by its words or as prose."""
    if text.startswith("$ ") or any(words(name).search(text) for name in ("logged", "may_hang", "no_hang")):
        return False
    if _CJK.search(text):
        return True
    prose = not text[:1].isspace() and of_people(text)
    return bool(words("complains").search(text)) and (prose or stage_of_line(text) is None)
