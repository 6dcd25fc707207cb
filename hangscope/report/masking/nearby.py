"""What looks like a password or a key near a word that announces one: `root pw (new) XXXX`, `use XXXX as the password`.

No syntax connects the two, so only a value of several kinds of characters that no identifier, version, host or path has is hidden
(`values.looks_typed`).
"""

from __future__ import annotations

import re
from typing import Any

from hangscope.model.regex import regex
from hangscope.report.masking.rules import hide
from hangscope.report.masking.tables import compiled, starred, table
from hangscope.report.masking.values import LOOKS, is_placeholder

_FAR = 240  # characters after the word
_LONGEST = 128  # characters of a value that begins there
# Before a value that has a name of its own, on another line than the word.
_OWN_NAME = regex(r"[\w.-]\\*[\"']?\s{0,20}(?:[:=]\s{1,4}\\*[\"']?|[:=]\\*[\"'])$")


def hide_nearby(text: str) -> str:
    """Return text without what looks like a password near a word that announces one. Linear in the text's length."""
    if not compiled(table("rules")["hints"]["near"]).search(text.lower()):
        return text
    text = hide("near", text)
    for row in table("rules")["announced"]:
        text = _hidden(text, row)
    return text


def _hidden(text: str, row: dict[str, Any]) -> str:
    """Return text without the secrets that the words of one row announce."""
    words, values = compiled(row["word"]), compiled(row["value"])
    spans: list[tuple[int, int]] = []
    done = scanned = 0
    for word in words.finditer(text):
        # A question is answered on the next lines.
        here = word.lastgroup and not text.startswith("?", word.end())
        until = _until(text, word.end(), 1 if here else row["lines"])
        begin = word.end() if word.lastgroup else word.start() - row["back"]
        for value in values.finditer(text, max(scanned, begin), until + _LONGEST):
            if value.start() >= until:
                break
            if _is_secret(value, row["looks"]) and not _is_apart(text, word, value):
                done = value.end("value")
                spans.append((value.start("value"), done))
        scanned = max(scanned, done if word.lastgroup else until)
    return starred(text, spans)


def _is_apart(text: str, word: re.Match[str], value: re.Match[str]) -> bool:
    """Return whether a value is before its word and not in quotes, or on another line with a name of its own."""
    if value.start() < word.end():
        return value.end() > word.start() or text[value.start("value") - 1] not in "\"'"
    on_another_line = text.find("\n", word.end(), value.start()) >= 0
    start = max(word.end(), value.start() - 60)
    return on_another_line and _OWN_NAME.search(text, start, value.start()) is not None


def _is_secret(match: re.Match[str], looks: str) -> bool:
    value = match["value"]
    if value is None:  # what everybody may read
        return False
    return LOOKS[looks](value) and not is_placeholder(value) and not match.groupdict().get("other")


def _until(text: str, start: int, lines: int) -> int:
    end = start
    for _ in range(lines):
        if (end := text.find("\n", end, start + _FAR) + 1) == 0:
            return start + _FAR
    return end
