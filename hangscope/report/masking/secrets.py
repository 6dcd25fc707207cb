r"""Secrets in quoted text: found by their own form, or by the name that they are given, and replaced by `***`.

Runs over the finished document, so that every output is masked alike. Every pattern is linear: an attempt starts only where a run of
its characters starts, and what may repeat is bounded or ends the pattern.

Text is searched as it is read, too: without escape codes and invisible characters, and decoded. `api%5Fkey=...`,
`\u0022password\u0022:`, `password&quot;:&quot;`, a token with a zero-width character in it, a name in full-width letters.
"""

from __future__ import annotations

import html
import re
import unicodedata
from functools import cache

from hangscope.model.regex import regex
from hangscope.report.masking.nearby import hide_nearby
from hangscope.report.masking.pairs import hide_pairs
from hangscope.report.masking.rules import hide
from hangscope.report.masking.tables import compiled, table
from hangscope.report.masking.values import is_mixed
from hangscope.report.words import clean

_DISGUISES = 3  # how many times text may be encoded
_DIGIT = r"(?=[A-Za-z-]{0,40}\d)"


def mask_text(text: str) -> str:
    """Return text with every secret in it replaced by `***`, in plain letters where it was disguised. Linear in the text's length."""
    masked = plain = _masked(text)
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
    text = _tokens().sub(_without_token, hide("issued", text))
    text = hide("call", hide("argument", text))
    if compiled(table("rules")["hints"]["named"]).search(text.lower()):
        text = hide("said", hide_pairs(hide("form", text)))
    return hide("blob", hide_nearby(text))


@cache
def _tokens() -> re.Pattern[str]:
    """Return the pattern of all tokens with a known prefix: an attempt looks at every character once."""
    return re.compile(
        "|".join(
            f"{re.escape(prefix)}{body.replace('#', _DIGIT)}{{{least},}}"
            for prefixes, body, least in table("issuers")["prefixes"]
            for prefix in prefixes.split()
        )
    )


def _without_token(match: re.Match[str]) -> str:
    """Within a word only what looks random is a token: `my_hf_XXXX`, not `task-0123`."""
    before = match.string[match.start() - 1 : match.start()]
    inside = before.isalnum() or before in ("_", "-")
    return "***" if not inside or match.group().isupper() or is_mixed(match.group()) else match.group()


_ESCAPES = regex(r"\x1b(?:\[[0-?]{0,40}[ -/]{0,8}[@-~]|\][^\x07\x1b]{0,400}(?:\x07|\x1b\\)?|[@-Z\\-_])")
_UNSEEN = regex(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]"
)
#: Of what a URL may encode, letters, digits and the signs that part names from values.
_PERCENT = regex(r"%(2[2-7DdEeFf]|3[0-9AaDdFf]|4[0-9A-Fa-f]|5[0-9AaFf]|6[1-9A-Fa-f]|7[0-9Aa])")
_JSON = regex(r"\\{1,64}u00([2-7][0-9A-Fa-f])")
_ENTITY = regex(r"&(?:quot|apos|amp|equals|colon|lowbar|#\d{2,3}|#[xX][0-9A-Fa-f]{2});")


def undisguised(text: str) -> str:
    """Return the text as it is read: without what is not seen, and decoded. The same object where nothing is to be done."""
    if not text.isascii():
        text = unicodedata.normalize("NFKC", _UNSEEN.sub("", text))
    elif not text.isprintable():
        text = _UNSEEN.sub("", _ESCAPES.sub("", text))
    if "\x1b" in text:
        text = _UNSEEN.sub("", _ESCAPES.sub("", text))
    if "%" in text:
        text = _PERCENT.sub(_decoded, text)
    if "\\u00" in text:
        text = _JSON.sub(_decoded, text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match.group()), text)
    return text


def _decoded(match: re.Match[str]) -> str:
    return chr(int(match.group(1), 16))
