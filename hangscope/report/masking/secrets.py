"""Secrets in quoted text: found by their own form, or by the name that they are given, and replaced by `***`.

Runs over the finished document, so that every output is masked alike. Every pattern is linear: an attempt starts only where a run of
its characters starts, and what may repeat is bounded or ends the pattern.
"""

from __future__ import annotations

import re

from hangscope.report.masking.columns import hide_columns
from hangscope.report.masking.disguise import seen, undisguised
from hangscope.report.masking.nearby import hide_nearby
from hangscope.report.masking.pairs import hide_pairs
from hangscope.report.masking.randomness import is_mixed
from hangscope.report.masking.rules import hide
from hangscope.report.masking.tables import compiled, table, tokens
from hangscope.report.masking.values import is_placeholder
from hangscope.report.words import clean

_DISGUISES = 3  # how many times text may be encoded


def mask_text(text: str) -> str:
    """Return text with every secret in it replaced by `***`, in plain letters where it was disguised. Linear in the text's length."""
    visible = seen(text)
    masked = plain = _masked(visible)
    if masked == visible:
        masked = text
    for _ in range(_DISGUISES):
        before, plain = plain, undisguised(plain)
        if plain == before:
            break
        if (found := _masked(plain)) != plain:
            masked = plain = found
    return masked


def presentable(text: str) -> str:
    """Return text as every output may show it: without secrets and control characters."""
    return mask_text(clean(text))


def _masked(text: str) -> str:
    text = tokens().sub(_without_token, hide("issued", text))
    text = hide("call", hide("argument", text))
    if compiled(table("rules")["hints"]["named"]).search(text.lower()):
        text = hide("said", hide_pairs(hide_columns(hide("form", text))))
    return hide("blob", hide_nearby(text))


def _without_token(match: re.Match[str]) -> str:
    """Within a word only what looks random is a token: `my_hf_XXXX`, not `task-0123`."""
    before = match.string[match.start() - 1 : match.start()]
    inside = before.isalnum() or before in ("_", "-")
    if is_placeholder(match.group()):
        return match.group()
    return "***" if not inside or match.group().isupper() or is_mixed(match.group()) else match.group()
