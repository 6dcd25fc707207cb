"""What looks like a password or a key near a word that announces one: `root pw (new) XXXX`, `use XXXX as the password`.

Near is the line of the word and the two lines after it. No syntax connects the two, so only a value of several kinds of characters that no identifier, version, host or path has is hidden
(`key_names.looks_typed`). After a weaker word, such as `login` or `user`, it needs a sign as well.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import (
    FOREIGN,
    is_placeholder,
    looks_issued,
    looks_typed,
)

_FAR = 240  # characters after the word
_BACK = 160  # characters before it, of a key in quotes
_LINES = 3
_MOST_CODES = 12  # lines of a list
_LONG = (
    r"password|assword:|passwd|passphrase|passcode|pswd|credential|userpass|requirepass|rootpw|getpass|radtest|storepass|keypass|(?<![A-Za-z])secrets?(?![a-z])|"
    + "|".join(FOREIGN)
)
_SHORT = r"(?<!ward )(?<!ward_)(?<!first )(?<!second )pass(?! \d|@|_rate)|pw|pwd|psk|creds|clave|parola|passe|mdp|geslo|sandi|community|auth|sasl|wifi|(?-i:EAP)"
_WEAK = r"login|logon|user|username|add_user|adduser|runas|account"
_WORD = regex(
    rf"(?i)(?:{_LONG})|(?<![A-Za-z])(?P<short>{_SHORT})(?![a-z])|(?<![A-Za-z])(?P<weak>{_WEAK})(?![a-z])"
)
_HINT = regex(
    r"mnemonic|words|otp|auth|sasl|wifi|eap |rootpw|radtest|pass|assword|pin|code|seed|phrase|headers|tok|key|token|session|pw|psk|pswd|secret|cred|clave|parola|mdp|geslo|sandi|community|login|logon|user|runas|account|"
    + "|".join(FOREIGN)
)
_VALUE = regex(r"(?P<value>[^\s\"'`|;:,<>(){}\[\]\\「」]{7,63}[^\s\"'`|;:,.?<>(){}\[\]\\「」])")
# A key or token that looks random, in the line of a word that announces one, unless another name is its own.
_KEY = regex(
    r"(?i)(?<![A-Za-z])(?:api[ _-]?keys?|(?:access|secret|private)[ _-]keys?|secrets?|tok(?:en)?|session|credentials|password|headers)(?![a-z])"
)
_RANDOM = regex(
    r"(?i)(?<![\w/.+$@-])(?<!h1:)(?:(?P<other>(?:[\w-]{0,40}[_-])?(?:commit|revision|sha\d{0,3}|digest|hash|id|uuid|checksum|etag|version|fingerprint|model|file|request|trace|span|run|image|key_id|runid|requestid|traceid)[\"']?(?: |: ?|=)[\"']?)|)(?P<value>[\w+-]{20,128}={0,2})(?![\w/.=@+-])"
)
_BEFORE = regex(
    rf"([^\s\"'`|;,<>(){{}}\[\]\\]{{8,64}})(?=(?:\\[rn])?[\"'`]? (?:as|is|was|for|#|//|\(|=) ?(?:(?:the|your|my|our|its|a|an|new|temporary) ){{0,2}}(?:[a-z]{{2,12}} )?(?i:{_LONG}|pass|pw)(?![a-z_]))"
)
# Codes in groups, after what they are for: `setup key: 47oc x7uz pxl4 3ykx`, `recovery codes:` and a line for each.
_CODES = regex(
    r"(?i)(?:recovery|backup|scratch|one-time|setup|totp|2fa|two-factor|license|unlock)[ _-](?:key|code|secret|seed|phrase)s?(?=[^:=\n]{0,40}(?:[:=]|\sis\s))|(?<![A-Za-z])(?:(?-i:PIN|OTP)|secret id|(?:verification|one-time) code)(?=(?: code)?(?: is|\s?[:=]))"
)
_GROUPS = regex(
    r"(?<![\w/.:-])(?P<value>[A-Za-z0-9]{4,8}(?:-[A-Za-z0-9]{4,8}){1,9}|(?:[A-Za-z0-9]{4} ){3,15}[A-Za-z0-9]{4}|[A-Z0-9]{16,64}|(?!(?:19|20)\d{6}(?!\d))\d{6,10}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w/.:-])"
)
# A list of words that stands for a key.
_PHRASE = regex(
    r"(?i)((?:mnemonic|(?:seed|recovery|backup|secret) (?:phrase|words))\\*[\"']?\W{1,4})(?:[a-z]{3,8}[ ,]{1,2}){11,23}[a-z]{3,8}(?![a-z])"
)
_OWN_NAME = regex(
    r"[\w.-]\\*[\"']?\s{0,20}(?:[:=]\s{1,4}\\*[\"']?|[:=]\\*[\"'])$"
)  # of a value on another line than the word
_SIGNS = frozenset("!#$&*?^~")


def hide_nearby(text: str) -> str:
    """Return text without what looks like a password near a word that announces one. Linear in the text's length."""
    if not _HINT.search(text.lower()):
        return text
    text = _PHRASE.sub(r"\1***", text)
    text = _BEFORE.sub(lambda m: "***" if _is_typed(m[1]) else m.group(), text)
    text = _hide(
        text, _KEY, _RANDOM, lambda value, _: not value["other"] and looks_issued(value["value"]), back=_BACK
    )
    text = _hide(
        text,
        _WORD,
        _VALUE,
        lambda value, weak: _is_typed(value["value"]) and (not weak or bool(_SIGNS & set(value["value"]))),
        back=_BACK,
    )
    return _hide(text, _CODES, _GROUPS, lambda value, _: any(map(str.isdigit, value["value"])), _MOST_CODES)


def _hide(
    text: str,
    words: re.Pattern[str],
    values: re.Pattern[str],
    is_secret: Callable[[re.Match[str], bool], bool],
    lines: int = _LINES,
    back: int = 0,
) -> str:
    """Hide values that are secrets, at most `_FAR` characters and `lines` lines after a word, or `back` characters before it; after a weak one in its line."""
    parts: list[str] = []
    done = scanned = 0
    for word in words.finditer(text):
        weak = word.lastgroup == "weak"
        until = _until(text, word.end(), 1 if word.lastgroup else lines)
        for value in values.finditer(
            text,
            max(scanned, word.start() - back if back and not word.lastgroup else word.end()),
            until + 128,
        ):
            if value.start() >= until:
                break
            quoted = text[value.start("value") - 1] in "\"'"
            if value.start() < word.end() and not (quoted and value.end() <= word.start()):
                continue
            named = text.find("\n", word.end(), value.start()) >= 0 and _OWN_NAME.search(
                text, max(word.end(), value.start() - 60), value.start()
            )
            if not named and is_secret(value, weak):
                parts += [text[done : value.start("value")], "***"]
                done = value.end("value")
        scanned = max(scanned, done if word.lastgroup else until)
    return "".join([*parts, text[done:]]) if parts else text


def _until(text: str, start: int, lines: int) -> int:
    end = start
    for _ in range(lines):
        if (end := text.find("\n", end, start + _FAR) + 1) == 0:
            return start + _FAR
    return end


def _is_typed(value: str) -> bool:
    return looks_typed(value) and not is_placeholder(value)
