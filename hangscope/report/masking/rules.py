"""Forms of secrets that are data: the rules of `rules.toml`, the options of `programs.toml` as such rules, and announced passwords."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.report.masking.names import MAX_NAME, Strength, names_a_secret, strength
from hangscope.report.masking.tables import compiled, starred, table, words
from hangscope.report.masking.values import LOOKS, is_placeholder

_MOST = 4  # secrets of one command
_FAR = 240  # characters before a match that belong to its line
_USAGE = regex(r"(?i)(?<![a-z])(?:usage|synopsis): ")
_ARGUMENT = "<<argument>>"


@dataclass(frozen=True, slots=True)
class Rule:
    """One form in which secrets appear; the keys of `rules.toml`, with its groups `before` and `secret` in one pattern."""

    pattern: re.Pattern[str]
    when: Callable[[str], object] | None = None
    looks: tuple[str, ...] = ()
    least: Strength = Strength.NOTHING
    within: re.Pattern[str] | None = None
    unless: re.Pattern[str] | None = None
    times: int = 1  # that it is applied

    def hidden(self, text: str) -> str:
        """Return a text without the secrets of this form."""
        for _ in range(self.times):
            before, text = text, self.pattern.sub(self._replaced, text)
            if text == before:
                break
        return text

    def _replaced(self, match: re.Match[str]) -> str:
        start, end = match.span("secret")
        if start < 0 or not self._is_secret(match):
            return match.group()
        return starred(match.group(), [(start - match.start(), end - match.start())])

    def _is_secret(self, match: re.Match[str]) -> bool:
        groups = match.groupdict()
        value, name = groups.get("judged") or groups["secret"], groups.get("name") or ""
        if self.least and strength(name.replace(" ", "_")[-MAX_NAME:]) < self.least:
            return False
        if (self.looks and not any(LOOKS[word](value) for word in self.looks)) or is_placeholder(value, name):
            return False
        if names_a_secret(value) or value.rstrip(",;").lower() in words("no_secret"):
            return False
        line = match.string[max(0, match.start() - _FAR) : match.start()].rpartition("\n")[2]
        if value.isupper() and value.replace("_", "").isalpha() and _USAGE.search(line):
            return False
        return self.unless is None or not self.unless.search(line)


def hide(stage: str, text: str) -> str:
    """Return text without the secrets that the rules of one stage find."""
    low = text.lower()
    for rule in _rules(stage):
        if rule.when is not None and not rule.when(low):
            continue
        if rule.within is not None:
            text = rule.within.sub(lambda match, rule=rule: rule.hidden(match.group()), text)  # type: ignore[misc]
        else:
            text = rule.hidden(text)
    return text


@cache
def _rules(stage: str) -> tuple[Rule, ...]:
    made = [_options()] if stage == "argument" else []
    return (*made, *map(_rule, table("rules")[stage]))


def _rule(data: dict[str, Any]) -> Rule:
    pattern = f"(?:{data['before']})(?P<secret>{data['secret']})"
    if "keep" in data:
        pattern = f"{data['keep']}|{pattern}"
    return Rule(
        compiled(pattern),
        compiled(data["when"]).search if "when" in data else None,
        tuple(data.get("looks", ())),
        Strength[data.get("least", "NOTHING")],
        compiled(data["within"]) if "within" in data else None,
        compiled(data["unless"]) if "unless" in data else None,
        data.get("times", 1),
    )


def _options() -> Rule:
    """Return the rule of the options whose argument is a secret, tried only in text that names one of the programs."""
    rows = [
        (programs.split(), option)
        for programs, options in table("programs")["options"]
        for option in options.split()
    ]
    programs = {program.lower() for names, _ in rows for program in names}

    def names_one(low: str) -> bool:
        return not programs.isdisjoint(low.translate(_SEPARATORS).split())

    before = "|".join(f"{_program(names)}{_option(option)}" for names, option in rows)
    return Rule(compiled(rf"(?:{before})(?P<secret>{_ARGUMENT})"), names_one, times=_MOST)


#: Between the words of a command: a blank, also in a list of them, and as auditd writes it.
_JOINT = r"(?:['\"],? ['\"]|['\"]? (?:a\d{1,2}=)?['\"]?)"
_SEPARATORS = str.maketrans(dict.fromkeys("/\\'\"`;|&$()[]{}<>=:,", " "))  # of the words of a command


def _program(names: list[str]) -> str:
    return rf"(?<![\w-])(?:{'|'.join(map(re.escape, names))}){_JOINT}(?:\S{{1,120}} ){{0,14}}?"


def _option(option: str) -> str:
    """Return what precedes the secret of an option: a blank, nothing after `/-p`, and after `%-U` a name and a percent sign."""
    if option.startswith("%"):
        return rf"{option[1:]} ?['\"]?[\w\\.@/-]{{1,80}}%"
    name = re.escape(option.removeprefix("/")) + ("" if option.startswith("/") else rf"(?:{_JOINT}|=)")
    return rf"(?:a\d{{1,2}}=)?['\"]?{name}['\"]?(?!\*{{3}})(?!\d{{1,5}}(?!\w))"


# What looks like a password or a key near a word that announces one: `root pw (new) XXXX`, `use XXXX as the password`. No syntax
# connects the two, so only a value of several kinds of characters that no identifier, version, host or path has is hidden
# (`values.looks_typed`).

_REACH = 240  # characters after the word
_LONGEST = 128  # characters of a value that begins there
# Before a value that has a name of its own, on another line than the word.
_OWN_NAME = regex(r"[\w.-]\\*[\"']?\s{0,20}(?:[:=]\s{1,4}\\*[\"']?|[:=]\\*[\"'])$")


def hide_nearby(text: str) -> str:
    """Return text without what looks like a password near a word that announces one. Linear in the text's length."""
    if not compiled(table("rules")["hints"]["near"]).search(text.lower()):
        return text
    text = hide("near", text)
    for row in table("rules")["announced"]:
        text = _announced(text, row)
    return text


def _announced(text: str, row: dict[str, Any]) -> str:
    """Return text without the secrets that the words of one row announce."""
    words, values = compiled(row["word"]), compiled(row["value"])
    spans: list[tuple[int, int]] = []
    scanned = 0
    for word in words.finditer(text):
        # A question is answered on the next lines.
        here = word.lastgroup and not text.startswith("?", word.end())
        until = _until(text, word.end(), 1 if here else row["lines"])
        begin = word.end() if word.lastgroup else word.start() - row["back"]
        if until <= scanned:
            continue
        for value in values.finditer(text, max(scanned, begin), until + 2 * _LONGEST):
            if value.start() >= until:
                break
            if _is_typed(value, row["looks"]) and not _is_apart(text, word, value):
                spans.append(value.span("value"))
                scanned = value.end("value")
        else:  # nor does one begin a little later
            until += _LONGEST // 2
        scanned = max(scanned, until)
    return starred(text, spans)


def _is_apart(text: str, word: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether a value is before its word and not in quotes, or on another line with a name of its own."""
    if value.start() < word.end():
        return value.end() > word.start() or text[value.start("value") - 1] not in "\"'"
    on_another_line = text.find("\n", word.end(), value.start()) >= 0
    start = max(word.end(), value.start() - 60)
    return on_another_line and _OWN_NAME.search(text, start, value.start()) is not None


def _is_typed(match: re.Match[str], looks: str) -> bool:
    value = match["value"]
    if value is None:  # what everybody may read
        return False
    return LOOKS[looks](value) and not is_placeholder(value) and not match.groupdict().get("other")


def _until(text: str, start: int, lines: int) -> int:
    end = start
    for _ in range(lines):
        if (end := text.find("\n", end, start + _REACH) + 1) == 0:
            return start + _REACH
    return end
