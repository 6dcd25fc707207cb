"""The columns of a table whose header says that they hold secrets: `user,password` and a line for each user, `| name | api_key |`."""

from __future__ import annotations

import re
from collections.abc import Callable

from hangscope.model.regex import regex
from hangscope.report.masking.names import MAX_NAME, Strength, is_secret, names_a_secret, strength
from hangscope.report.masking.tables import starred
from hangscope.report.masking.values import is_placeholder, is_random, looks_composed

_HINT = regex(r"(?i)pass|pwd|token|secret|key|cred|psk")
_NAME = regex(r"[\"']?[A-Za-z][\w .-]{0,40}[\"']?")
_RULE = regex(r"[\s|+=:│┃┼─━-]{3,400}")  # the line below a header
#: What parts the cells of a line, and whether that is a sign of its own.
_PARTS = (
    (regex(r"(?:^|(?<=,))[^,\n]*"), True),
    (regex(r"(?:^|(?<=;))[^;\n]*"), True),
    (regex(r"[^|│\n]+"), True),
    (regex(r"\S+(?: \S+)*"), False),
)
_LISTS = regex(r"[,;](?:\s|$)")  # as in code, not between the cells of a table
_MOST = 40  # columns


def hide_columns(text: str) -> str:
    """Return text without the values of the columns of secrets. Linear in the text's length."""
    if "\n" not in text or not _HINT.search(text):
        return text
    lines = text.split("\n")
    hide: Callable[[str], str | None] | None = None
    for number, line in enumerate(lines):
        if hide is not None and (hidden := hide(line)) is not None:
            lines[number] = hidden
        else:
            hide = _header(line)
    return "\n".join(lines)


def _header(line: str) -> Callable[[str], str | None] | None:
    """Return what hides the secrets of a line below this one; nothing where this is no header, or of no secrets."""
    if not _HINT.search(line):
        return None
    for cells, is_signed in _PARTS:
        names = [match.group().strip() for match in cells.finditer(line)]
        if not 1 < len(names) <= _MOST or not all(map(_NAME.fullmatch, names)):
            continue
        found = {number: how for number, name in enumerate(names) if (how := _of_column(name, is_signed))}
        if found and (is_signed or len(found) == 1) and not _LISTS.search(line):
            return lambda below: _below(below, cells, len(names), found, is_signed)
    return None


def _of_column(name: str, is_signed: bool) -> Strength:
    how = strength(name.strip("\"'").replace(" ", "_")[-MAX_NAME:])
    if not is_signed and name.lower().startswith("secret"):  # the name of one
        return Strength.NOTHING
    return how


def _below(
    line: str, cells: re.Pattern[str], count: int, found: dict[int, Strength], is_signed: bool
) -> str | None:
    """Return a row of a table with its secrets masked; None if the line is no row of the table."""
    if _RULE.fullmatch(line):
        return line
    matches = list(cells.finditer(line))
    if len(matches) != count:
        return None
    spans = []
    for number, how in found.items():
        match = matches[number]
        value = match.group().strip().strip("\"'")
        plain = not is_signed and not (looks_composed(value) or is_random(value))
        if plain or not value or not is_secret(value, how) or is_placeholder(value) or names_a_secret(value):
            continue
        start = match.start() + match.group().index(value)
        spans.append((start, start + len(value)))
    return starred(line, spans)
