r"""Secrets in quoted text: found by their own form, or by the name that they are given, and replaced by `***`.

Runs over the finished document, so that every output is masked alike. Every pattern is linear: an attempt starts only where a run of
its characters starts, and what may repeat is bounded or ends the pattern.

Escape codes, invisible characters and encodings can hide a name or a token from a search: `api%5Fkey=...`, `\u0022password\u0022:`,
`password&quot;:&quot;`, a token with a zero-width character in it, a name in full-width letters. The text is searched without them, too.
"""

from __future__ import annotations

import html
import re
import unicodedata

from hangscope.model.regex import regex
from hangscope.report.masking.columns import hide_columns
from hangscope.report.masking.pairs import hide_pairs
from hangscope.report.masking.rules import hide, hide_nearby
from hangscope.report.masking.tables import compiled, table
from hangscope.report.words import clean

_DISGUISES = 3  # how many times text may be encoded
_UNSEEN = regex(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ufffd]"
)
_QUOTES = str.maketrans("«»„“”‟‹›‚‘’‛", '""""""' + "'" * 6)
#: Of what a URL may encode, letters, digits and the signs that part names from values.
_PERCENT = regex(r"%(2[2-7DdEeFf]|3[0-9AaDdFf]|4[0-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9Aa])")
_JSON = regex(r"\\{1,64}u00([2-7][0-9A-Fa-f])")
_ENTITY = regex(r"&(?:quot|apos|amp|equals|colon|lowbar|#\d{2,3}|#[xX][0-9A-Fa-f]{2});")


def presentable(text: str) -> str:
    """Return text as every output may show it: without control characters, and with every secret in it replaced by `***`.

    A disguised secret leaves the text in plain letters. Linear in the text's length.
    """
    text = clean(text)
    visible = _seen(text)
    masked = plain = _masked(visible)
    if masked == visible:
        masked = text
    for _ in range(_DISGUISES):
        before, plain = plain, _undisguised(plain)
        if plain == before:
            break
        if (found := _masked(plain)) != plain:
            masked = plain = found
    return masked


def _masked(text: str) -> str:
    text = hide("call", hide("argument", hide("issued", text)))
    if compiled(table("rules")["hints"]["named"]).search(text.lower()):
        text = hide("said", hide_pairs(hide_columns(hide("form", text))))
    return hide("blob", hide_nearby(text))


def _seen(text: str) -> str:
    """Return the text without what is not seen, and with plain quotes."""
    return text if text.isascii() else unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).translate(_QUOTES)


def _undisguised(text: str) -> str:
    """Return the text as it is read: decoded, and without what is not seen."""
    text = _PERCENT.sub(_decoded, text) if "%" in text else text
    text = _JSON.sub(_decoded, text) if "\\u00" in text else text
    text = _ENTITY.sub(lambda match: html.unescape(match.group()), text) if "&" in text else text
    return _seen(clean(text))


def _decoded(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16))
