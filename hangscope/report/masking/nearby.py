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
    looks_chosen,
    looks_issued,
    looks_typed,
)

_FAR = 240  # characters after the word
_LINES = 3
_MOST_CODES = 12  # lines of a list
_ISSUED = 20  # characters of a key among the arguments of a call
_LONG = (
    r"password|assword:|passwd|passphrase|passcode|pswd|credential|userpass|storepass|keypass|"
    + "|".join(FOREIGN)
)
_SHORT = r"(?<!ward )(?<!ward_)(?<!first )(?<!second )pass(?! \d|@|_rate)|pw|pwd|psk|secret|creds|clave|parola|passe|mdp|geslo|sandi|community"
_WEAK = r"login|logon|user|username|add_user|adduser|runas|account"
_WORD = regex(
    rf"(?i)(?:{_LONG})|(?<![A-Za-z])(?P<short>{_SHORT})(?![a-z])|(?<![A-Za-z])(?P<weak>{_WEAK})(?![a-z])"
)
_HINT = regex(
    r"pass|assword|pin|code|seed|phrase|fernet|cipher|hmac|crypt|jwt|sign|vault|tok|key|token|connect|auth|session|pw|psk|pswd|secret|cred|clave|parola|mdp|geslo|sandi|community|login|logon|user|runas|account|"
    + "|".join(FOREIGN)
)
_VALUE = regex(r"(?P<value>[^\s\"'`|;:,<>(){}\[\]\\「」]{7,63}[^\s\"'`|;:,.?<>(){}\[\]\\「」])")
# A key or token that looks random, in the line of a word that announces one, unless another name is its own.
_KEY = regex(
    r"(?i)(?<![A-Za-z])(?:api[ _-]?keys?|(?:access|secret|private)[ _-]keys?|secrets?|tok(?:en)?|session|credentials|password)(?![a-z])"
)
_RANDOM = regex(
    r"(?i)(?<![\w/.=+$@-])(?<!h1:)(?:(?P<other>(?:[\w-]{0,40}[_-])?(?:commit|revision|sha\d{0,3}|digest|hash|id|uuid|checksum|etag|version|fingerprint|model|file|request|trace|span|run|image|key_id|runid|requestid|traceid)[\"']?(?: |: ?|=)[\"']?)|)(?P<value>[\w-]{20,128})(?![\w/.=@-])"
)
_BEFORE = regex(
    rf"([^\s\"'`|;,<>(){{}}\[\]\\]{{8,64}})(?=(?:\\[rn])?[\"'`]? (?:as|is|was|for|#|//|\(|=) ?(?:(?:the|your|my|our|its|a|an|new|temporary) ){{0,2}}(?:[a-z]{{2,12}} )?(?i:{_LONG}|pass|pw)(?![a-z_]))"
)
_HERE = regex(r"(<<< ?\\*[\"']?)([^\s\"'|<>]{6,64})")  # a string on standard input
# The arguments of a call that opens a connection or a session: `connect("db", "me", "XXXX")`.
_CALL = regex(
    r"(?i)(?:connect|log_?in|logon|auth(?!or)|cred|account|passw|jwt|secret|(?:api|private|access)_?key|fernet|cipher|hmac|crypt|vault|(?P<weak>token(?!iz)|session|(?<![A-Za-z])sign))[\w.]{0,40}\([^()\n]{1,300}"
)
_ARGUMENT = regex(r"(?<=[\"'])[^\s\"'(),]{8,64}(?=[\"'])")
# Codes in groups, after what they are for: `setup key: 47oc x7uz pxl4 3ykx`, `recovery codes:` and a line for each.
_CODES = regex(
    r"(?i)(?:recovery|backup|scratch|one-time|setup|totp|2fa|two-factor|license|unlock)[ _-](?:key|code|secret|seed|phrase)s?(?=[^:=\n]{0,40}(?:[:=]|\sis\s))|(?<![A-Za-z])(?-i:PIN)(?=(?: code)?(?: is|\s?[:=]))"
)
_GROUPS = regex(
    r"(?<![\w/.:-])(?P<value>[A-Za-z0-9]{4,8}(?:-[A-Za-z0-9]{4,8}){1,9}|(?:[A-Za-z0-9]{4} ){3,15}[A-Za-z0-9]{4}|[A-Z0-9]{16,64}|(?!19|20)\d{6,10})(?![\w/.:-])"
)
# A password after the name of a user, of any command: `-u bob -p XXXX`, `open -u bob,XXXX`.
_OF_A_USER = regex(
    r"((?<![\w-])(?:-[uUl]|--?user(?:name)?)[ =]{1,3}[\w.@\\-]{1,60}(?:,(?=\S{0,60}[^\w\s/.,-])|(?: -\S{1,60}){0,2} {1,3}(?:-[pPw]|--?pass(?:word)?)[ =]{1,3}[\"']?))([^\s\"']{4,64})"
)
_NO_PASSWORD = regex(
    r"(?<![\w-])(?:mysql|mariadb|squeue|srun|sbatch|salloc|sinfo|sacct)(?![\w-])"
)  # whose -p means something else
_SIGNS = frozenset("!#$&*?^~")


def hide_nearby(text: str) -> str:
    """Return text without what looks like a password near a word that announces one. Linear in the text's length."""
    if "<<<" in text:
        text = _HERE.sub(lambda m: f"{m[1]}***" if _is_typed(m[2]) else m.group(), text)
    if "-" in text:
        text = _OF_A_USER.sub(_without_password, text)
    if not _HINT.search(text.lower()):
        return text
    text = _CALL.sub(_in_call, text)
    text = _BEFORE.sub(lambda m: "***" if _is_typed(m[1]) else m.group(), text)
    text = _hide(text, _KEY, _RANDOM, lambda value, _: not value["other"] and looks_issued(value["value"]))
    text = _hide(
        text,
        _WORD,
        _VALUE,
        lambda value, weak: _is_typed(value["value"]) and (not weak or bool(_SIGNS & set(value["value"]))),
    )
    return _hide(text, _CODES, _GROUPS, lambda value, _: any(map(str.isdigit, value["value"])), _MOST_CODES)


def _hide(
    text: str,
    words: re.Pattern[str],
    values: re.Pattern[str],
    is_secret: Callable[[re.Match[str], bool], bool],
    lines: int = _LINES,
) -> str:
    """Hide values that are secrets, at most `_FAR` characters and `_LINES` lines after a word; after a weak one in its line."""
    parts: list[str] = []
    done = scanned = 0
    for word in words.finditer(text):
        weak = word.lastgroup == "weak"
        until = _until(text, word.end(), 1 if word.lastgroup else lines)
        for value in values.finditer(text, max(scanned, word.end()), until + 128):
            if value.start() >= until:
                break
            if is_secret(value, weak):
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


def _without_password(match: re.Match[str]) -> str:
    line = match.string[max(0, match.start() - _FAR) : match.start()].rpartition("\n")[2]
    hidden = looks_chosen(match[2]) and not is_placeholder(match[2]) and not _NO_PASSWORD.search(line)
    return f"{match[1]}***" if hidden else match.group()


def _is_typed(value: str) -> bool:
    return looks_typed(value) and not is_placeholder(value)


def _in_call(match: re.Match[str]) -> str:
    """Hide the quoted arguments of a call that look like a key, and unless the call is of a weak word, like a password."""
    typed = match["weak"] is None

    def hidden(argument: re.Match[str]) -> str:
        value = argument.group()
        issued = len(value) >= _ISSUED and looks_issued(value)
        return "***" if issued or (typed and _is_typed(value)) else value

    return _ARGUMENT.sub(hidden, match.group())
