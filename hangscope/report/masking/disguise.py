r"""Text without what can hide a name or a token from a search: escape codes, invisible characters, encodings.

`api%5Fkey=...`, `\u0022password\u0022:`, `password&quot;:&quot;`, a token with a zero-width character in it, a name in full-width letters.
"""

from __future__ import annotations

import html
import re
import unicodedata

from hangscope.model.regex import regex

_ESCAPES = regex(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = regex(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\ufffd]"
)
_QUOTES = str.maketrans("«»„“”‟‹›‚‘’‛", '""""""' + "'" * 6)
#: Of what a URL may encode, letters, digits and the signs that part names from values.
_PERCENT = regex(r"%(2[2-7DdEeFf]|3[0-9AaDdFf]|4[0-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9Aa])")
_JSON = regex(r"\\{1,64}u00([2-7][0-9A-Fa-f])")
_ENTITY = regex(r"&(?:quot|apos|amp|equals|colon|lowbar|#\d{2,3}|#[xX][0-9A-Fa-f]{2});")


def seen(text: str) -> str:
    """Return the text without what is not seen, and with plain quotes. The same object where nothing is to be done."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text)).translate(_QUOTES)
    elif not text.isprintable():
        text = _UNSEEN.sub("", _ESCAPES.sub("", text))
    return text


def undisguised(text: str) -> str:
    """Return the text as it is read: without what is not seen, and decoded. The same object where nothing is to be done."""
    text = seen(text)
    if "%" in text:
        text = _PERCENT.sub(_decoded, text)
    if "\\u00" in text:
        text = _JSON.sub(_decoded, text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    return text


def _decoded(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16))
