"""Secrets in quoted text: found by their own form, or by the name that they are given, and replaced by `***`.

Runs over the finished view, so that every output is masked alike. Every pattern is linear: an attempt starts only where a run of
its characters starts, and what may repeat is bounded or ends the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hangscope.model.regex import regex
from hangscope.report.masking.call_arguments import hide_call_arguments
from hangscope.report.masking.command_arguments import hide_arguments
from hangscope.report.masking.disguise import undisguised
from hangscope.report.masking.key_names import (
    FOREIGN,
    FOREIGN_KEYS,
    MAX_NAME,
    REFERENCE,
    SHORT_FOREIGN,
    Strength,
    is_mixed,
    is_placeholder,
    is_secret,
    looks_chosen,
    looks_joined,
    looks_made,
    looks_typed,
    strength,
)
from hangscope.report.masking.nearby import hide_nearby
from hangscope.report.masking.token_forms import hide_accounts, hide_blobs, hide_tokens

# Of names; searched in text without capitals, which takes a fifth of the time of ignoring case.
_HINT = regex(
    r"key|token|secret|pass|dockerc|pwd|pw|psw|cred|auth|cookie|sess|sig|bearer|://|login|-u|hook|jwt|kty|sensitive|masked|client|(?<![a-z])sk[\"' :=]|seed|ticket|mysql|redis|mongo|ldap|zip -|"
    r":\d{4,5}:|:\*:|munge:|basic |share |code |code=|md5|scram|encrypt|crumb|zugang|psk|\s-[a-z]|::|identifi|zugangs|creden|api|private|eyj|eaa|cmvmd|mii|b3bl|atlas|sg\.|xapp|dt0c|:aa|q~|\$|sha|pat|-us\d|t1\.|[mno][\w-]{22,27}\.|oracle:|\w@|sqlplus|sqlldr|[ei][xm]pdp|mdp|parola|"
    + "|".join((*FOREIGN, *SHORT_FOREIGN, *FOREIGN_KEYS))
)
# A name in or without quotes, what parts it from its value, and how the value is quoted; quotes may be escaped.
_PAIR = regex(
    r"(?<![\w.▁-])(?<!\d{12}:)([\w.-]+)(\\*[\"'`]?)\]?(?:\s{0,40}|\s{1,4}\.{3,80}\s)(:=|[-=]{1,3}>|→|=|:|>|<<|(?<=\.\s)|%3[dDaA]|,(?=\s{0,4}b?\\*[\"']))\s{0,4}(?:[|>]?[-+]?(?:\s|\\n){1,16}|![!\w]{1,20}\s{1,4})?"
    r"(?:- |[\w.]{0,40}[\[(]\s{0,4}(?=[bruf]?\\*[\"'`]))?(?:[bruf](?=\\*[\"'`]))?(\"{3}|'{3}|\\*[\"'`]|)"
)
_OPTION = regex(r"(?<![\w-])--?([A-Za-z][\w-]{1,60})[ \t]{1,4}(\\*[\"']?)(?=[^\s-])")
# A key-like word, with the word before it, and a value behind it that no sign parts from it: `the API key XXXX`, `ApiKey('XXXX')`.
_SAID = regex(
    r"(?i)(?<![\w.-])((?:[a-z]{2,16} )?[\w-]{0,60}(?:key|token|secret|password|passwd|pwd|jwt|ticket))"
    r"(?:[ \t]{1,3}(?:(?:is|was|of|to)[ \t:=]{1,3})?|\([\"']?)([\w+/=.~-]{16,512})"
)
# The password of somebody: `Password for user bob: XXXX`, `passphrase for key '/x/id': XXXX`, `password 'XXXX' is wrong`.
_PASSWORD = r"password|passwd|passphrase|passcode|pwd|passe|" + "|".join(FOREIGN)
_FOR = regex(
    r"(?i)(?<![\w.-])([\w-]{0,40}(?:"
    + _PASSWORD
    + r"|secret|token|key)) {1,3}(?:for|of|pour|für|para|per|van|от|для) {1,3}[^\s:=][^\n:=]{0,79}[:=]\s{0,4}(\\*[\"'`]?)(?=\S)"
)
_QUOTED = regex(r"(?i)(?<![\w.-])(" + _PASSWORD + r") {1,3}(?:is |was )?(\\*[\"'`])(?=\S)")
# Without quotes what looks like a password, with words between that say nothing: `password for bob is now XXXX1`, not `password is wrong`.
_GLUE = r"is|was|are|now|set|reset|changed|to|as|ist|ist nun|lautet|est|es|è|é|e|är|er|on|jest|je|este|lautet nun|:|=|~|\||—|–|\[[\w@.-]{1,40}\]="
_IS = regex(
    r"(?i)(?<![A-Za-z])((?:"
    + _PASSWORD
    + r"|parola|clave|geslo|pass)(?:et)?)(?:\s{0,3}(?:for|für|pour|para|per|of|von|de|do)\s{1,3}(?:user\s)?[\w.@-]{1,40})?"
    r"((?:\s{0,3}(?:(?<!\w)(?:"
    + _GLUE
    + r")(?!\w)|[~|:=\[—–]))(?:\s{0,3}(?:"
    + _GLUE
    + r")(?=\s)){0,3}\s{1,3}|\s{1,3}|\[[\w@.-]{1,40}\]=|\s{0,3}[はが는은가为為是]\s{0,3}「?)[\"']?([^\s\"'`|]{6,128})"
)
_SPOKEN = regex("pass|pwd|pw|secret|token|key|" + "|".join((*FOREIGN, *SHORT_FOREIGN)))
_OF_A_LOGIN = regex(r"auth|log[io]n|sign.?in|cred|zugangsdaten|identifiants")
# A variable of the environment and its value: `%env HF_TOKEN XXXX`, `set AWS_SECRET_ACCESS_KEY XXXX`.
_VARIABLE = regex(r"(?<![\w.$-])([A-Z][A-Z0-9_]{3,60})()[ \t]{1,3}[\"']?([^\s\"'`]{6,128})")
# A user and a password beside each other: `credentials: admin / XXXX`.
_BESIDE = regex(
    r"(?i)(?<![A-Za-z])((?:credentials?|creds|auth|logins?|zugang|zugangsdaten|identifiants|credenciales|credenziali)\W{1,4}[\w.@*-]{1,60})(\s{0,2}[/:|]\s{0,2})([^\s\"'`]{6,128})"
)
_FOREIGN_PAIR = regex(
    r"(?i)(" + "|".join(word for word in FOREIGN if not word.isalpha()) + r")()\s{0,3}[:=]\s{0,3}(?=\S)"
)
# A key with a number, of several: `Unseal Key 3: XXXX`.
_NUMBERED = regex(
    r"(?i)(?<![\w.-])((?:[a-z]{2,16} ){0,2}(?:key|token|secret|share|shard|code|password)) {1,2}[#(]?\d{1,2}\)?(?:\s?\([^()\n]{1,40}\))?\s{0,3}[:=]\s{1,4}([\w+/=.~-]{16,512})"
)
# An element of XML whose attribute names it: `<string name="password">XXXX</string>`; or a field of a form.
_ELEMENT = regex(
    r"(?:name|key|id)=[\"']([\w.-]{1,80})[\"']()(?:[^<>\n]{0,80}>\s{0,8}|[^<>\n\\]{0,80}(?:\n\r?\n|(?:\\r)?\\n(?:\\r)?\\n))(?=[^\s<])"
)
# A row of a table: `| password | XXXX |`.
_CELL = regex(r"(?<=[|│] )([\w.-]+)()\s{0,40}[|│]\s{1,40}(?=[^\s|│])")
_ITEM = regex(r"\\{0,8}[\"'`]\s{0,4},\s{0,4}[bruf]?(\\{0,8}[\"'`])")  # from one item of a list to the next
_LIST = regex(r"[\[(]\s{0,4}[bruf]?\\{0,8}[\"'`]$")
_NESTED = regex(
    r"\{(?!\{|[^{}\s:=\"']{1,128}\})|(?:value|secret|data|content|raw|plain|name)[\"']?\s{0,4}[:=]\s"
)  # after `token:`
_HEAD = regex(r"[A-Za-z_]{1,20}:")  # the first name of a nested block
_INNER = ("value", "secret", "data", "content", "raw", "plain", "default")  # keys within `"token": {...}`
# What says that an object holds a secret, and under which keys it does: `"sensitive": true`, a private key as a JWK.
_MARKED = (
    (
        regex(
            r"(?i)(?<![\w-])(?:is_?)?(?:sensitive|secret|masked|confidential)\\*[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?true(?!\w)"
        ),
        frozenset(_INNER),
    ),
    (regex(r"(?<![\w-])kty\\*[\"']?\s{0,4}[:=]"), frozenset(("d", "p", "q", "dp", "dq", "qi", "k"))),
)
_OBJECT = regex(r"\{[^{}]+")
_NEARBY = 400  # characters in which such a key is looked for
_DISGUISES = 3  # how many times text may be encoded
_SCHEME = regex(
    r"(?i)(?:basic|bearer|token|digest|negotiate|ntlm|aws4-hmac-sha256|[a-z][a-z0-9-]{2,30}(?=\s{1,4}[^\s,;]{8}))\s{1,4}"
)
_BARE = regex(r"[^\s\"'`]*(?:[\"'`](?=\w)[^\s\"'`]*)*")
_NEXT = regex(r"[,;&<](?=[\w./-]{1,60}[=:>]|$)")
_JUDGED = 128  # so many characters of a value decide whether it is a secret


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


def _masked(text: str) -> str:
    text = hide_call_arguments(hide_arguments(hide_tokens(text)))
    return hide_blobs(hide_nearby(_without_named(text) if _HINT.search(text.lower()) else text))


def _without_named(text: str) -> str:
    text = hide_accounts(text)
    text = _OBJECT.sub(_without_marked, text) if "{" in text else text
    text = _hide(_hide(text, _OPTION) if "-" in text else text, _PAIR)
    text = _hide(text, _CELL) if "|" in text or "│" in text else text
    text = _hide(text, _ELEMENT) if ">" in text or "form-data" in text else text
    low = text.lower()
    if _SPOKEN.search(low):
        text = _hide(_hide(_hide(text, _FOR), _QUOTED), _FOREIGN_PAIR)
        text = _IS.sub(_without_password, text)
    if _OF_A_LOGIN.search(low):
        text = _BESIDE.sub(_if(_is_made_or_typed), text)
    text = _VARIABLE.sub(_without_variable, text)
    return _SAID.sub(_without_said, _NUMBERED.sub(_without_numbered, text))


def _without_marked(match: re.Match[str]) -> str:
    text = match.group()
    for mark, names in _MARKED:
        text = _hide(text, _PAIR, names) if mark.search(text) else text
    return text


def _without_said(match: re.Match[str]) -> str:
    name, value = match.groups()
    how = min(strength(name.replace(" ", "_")[-MAX_NAME:]), Strength.MAYBE)
    if name.lower().endswith("for key") and not is_mixed(value):  # of a cache
        return match.group()
    return match.group()[: -len(value)] + "***" if is_secret(value, how) else match.group()


def _without_password(match: re.Match[str]) -> str:
    """Hide what looks like a password; where only a blank precedes it, what a machine made."""
    value = match.group(3).rstrip(".,;)]}")
    found = looks_made(value) if not match.group(2).strip() else looks_chosen(value) or looks_joined(value)
    hidden = found and not is_placeholder(value) and (looks_made(value) or any(map(str.isdigit, value)))
    return match.group().replace(value, "***") if hidden else match.group()


def _without_variable(match: re.Match[str]) -> str:
    name, value = match.group(1), match.group(3)
    hidden = strength(name) is Strength.SECRET and looks_chosen(value) and not is_placeholder(value, name)
    return match.group()[: -len(value)] + "***" if hidden else match.group()


def _is_made_or_typed(value: str) -> bool:
    return looks_made(value) or looks_typed(value)


def _if(looks: Callable[[str], bool]) -> Callable[[re.Match[str]], str]:
    """Return what replaces the third part of a match where it looks like a password."""

    def replaced(match: re.Match[str]) -> str:
        value = match.group(3)
        hidden = looks(value) and not is_placeholder(value)
        return match.group()[: -len(value)] + "***" if hidden else match.group()

    return replaced


def _without_numbered(match: re.Match[str]) -> str:
    value = match.group(2)
    return match.group()[: -len(value)] + "***" if is_secret(value, Strength.MAYBE) else match.group()


def _hide(text: str, pattern: re.Pattern[str], names: frozenset[str] = frozenset()) -> str:
    """Hide the values of the pairs that a pattern finds, one after another; those of `names` in any case."""
    parts: list[str] = []
    done = at = 0
    outer, until = Strength.NOTHING, 0  # of `name: DB_PASSWORD, value: XXXX` and `"token": {"value": "XXXX"}`
    while pair := pattern.search(text, at):
        at = pair.end()
        name, quote = pair.group(1)[-MAX_NAME:], pair.group(pair.lastindex or 1)
        begin = pair.start()
        how = strength(name, in_query=begin > 0 and text[begin - 1] in "?&")
        if begin < until and name.lower() not in ("name", "key"):
            how = max(how, outer if name.lower() in _INNER else min(outer, Strength.MAYBE))
        how = Strength.SECRET if name in names else how
        if how is Strength.NOTHING and name.lower() not in ("name", "key"):
            continue
        if how and not quote and _NESTED.match(text, at):
            outer, until = how, at + _NEARBY
            continue
        if how and not quote and text.startswith("//", at):  # the scheme of a URL
            continue
        if how and (reference := REFERENCE.match(text, at)):
            at = reference.end()
            continue
        end = _end(text, at, quote, name, at + _JUDGED)
        value = text[at:end]
        if how and not quote and _HEAD.fullmatch(value):
            outer, until = how, at + _NEARBY
            continue
        if name.lower() in ("name", "key") and strength(value[-MAX_NAME:]) is Strength.SECRET:
            outer, until = Strength.SECRET, end + _NEARBY
            at = end
        if is_secret(value, how) and not is_placeholder(value, name):
            end = _end(text, at, quote, name, len(text)) if end == at + _JUDGED else end
            parts += [text[done:at], "***"]
            done = at = end
            while _LIST.search(text, max(begin, pair.end() - 24), pair.end()) and (
                item := _ITEM.match(text, end)
            ):
                end = _closing(text, item.end(), item.group(1), len(text))
                parts += [text[done : item.end()], "***"]
                done = at = end
    return "".join([*parts, text[done:]]) if parts else text


def _end(text: str, start: int, quote: str, name: str, limit: int) -> int:
    """Return where a value ends, `limit` at most: at its quote, or without one at a blank or at the next pair."""
    if quote:
        return _closing(text, start, quote, limit)
    if text.startswith("{", start) and (end := text.find("}", start, limit)) > 0:
        return min(end + 1, _line_end(text, start, limit))  # ODBC
    if text.startswith("[", start) and (end := text.find("]", start, limit)) > 0:
        return min(end, _line_end(text, start, limit))
    if name.lower().endswith("authorization") and (scheme := _SCHEME.match(text, start)):
        if scheme.group()[0].lower() in "ad":  # many parts: Digest, AWS4-HMAC-SHA256
            return _line_end(text, start, limit)
        start = scheme.end()
    elif name.lower().endswith("cookie"):
        return _line_end(text, start, limit)
    end = bare.end() if (bare := _BARE.match(text, start, limit)) else start
    if following := _NEXT.search(text, start, end):
        end = following.start()
    return start + len(text[start:end].rstrip(")]},;")) if end < limit else end


def _closing(text: str, start: int, quote: str, limit: int) -> int:
    """Return where the quoted value ends that begins at `start`; at the end of its line where the quote is cut off."""
    at = start
    while (found := text.find(quote, at, limit)) >= 0:
        before = text[max(start, found - 64) : found]
        if len(quote) > 1 or (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            return found
        at = found + 1
    return _line_end(text, start, limit)


def _line_end(text: str, start: int, limit: int) -> int:
    end = text.find("\n", start, limit)
    return end if end >= 0 else min(limit, len(text))
