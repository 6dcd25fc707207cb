"""What looks like a password in the line of a word that announces one: `root pw (new) XXXX`, `use XXXX as the password`.

No syntax connects the two, so only a value of several kinds of characters that no identifier, version, host or path has is hidden
(`key_names.looks_typed`). After a weaker word, such as `login` or `user`, it needs a sign as well.
"""

from __future__ import annotations

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import (
    FOREIGN,
    is_placeholder,
    looks_chosen,
    looks_issued,
    looks_typed,
)

_FAR = 160  # characters of the line after the word
_LONG = r"password|passwd|passphrase|passcode|pswd|credential|userpass|storepass|keypass|" + "|".join(FOREIGN)
_SHORT = r"pass|pw|pwd|psk|secret|creds|clave|parola|passe|mdp|geslo|sandi|community"
_WEAK = r"login|logon|user|username|add_user|adduser|runas|account"
_WORD = regex(rf"(?i)(?:{_LONG})|(?<![A-Za-z])(?:{_SHORT})(?![a-z])|(?<![A-Za-z])(?P<weak>{_WEAK})(?![a-z])")
_HINT = regex(
    r"pass|key|token|connect|auth|session|pw|psk|pswd|secret|cred|clave|parola|mdp|geslo|sandi|community|login|logon|user|runas|account|"
    + "|".join(FOREIGN)
)
_VALUE = regex(r"[^\s\"'`|;,<>(){}\[\]「」]{8,64}")
# A key or token that looks random, in the line of a word that announces one, unless another name is its own.
_KEY = regex(
    r"(?i)(?<![A-Za-z])(?:api[ _-]?keys?|(?:access|secret|private)[ _-]keys?|secrets?|token|credentials|password)(?![a-z])"
)
_RANDOM = regex(
    r"(?i)(?<![\w/.=+$@-])(?<!h1:)(?:(?P<other>(?:[\w-]{0,40}[_-])?(?:commit|revision|sha\d{0,3}|digest|hash|id|uuid|checksum|etag|version|fingerprint|model|file|request|trace|span|run|image|key_id|runid|requestid|traceid)[\"']?(?: |: ?|=)[\"']?)|)([\w-]{20,128})(?![\w/.=@-])"
)
_BEFORE = regex(
    rf"([^\s\"'`|;,<>(){{}}\[\]\\]{{8,64}})(?=(?:\\[rn])?[\"'`]? (?:as|is|was|for|#|//|\(|=) ?(?:(?:the|your|my|our|its|a|an|new|temporary) ){{0,2}}(?:[a-z]{{2,12}} )?(?i:{_LONG}|pass|pw)(?![a-z_]))"
)
_HERE = regex(r"(<<< ?\\*[\"']?)([^\s\"'|<>]{6,64})")  # a string on standard input
# The arguments of a call that opens a connection or a session: `connect("db", "me", "XXXX")`.
_CALL = regex(r"(?i)(?:connect|log_?in|logon|auth|credential|account|passw|session)\w{0,30}\([^()\n]{1,300}")
_ARGUMENT = regex(r"(?<=[\"'])[^\s\"'(),]{8,64}(?=[\"'])")
# A password after the name of a user, of any command: `-u bob -p XXXX`, `open -u bob,XXXX`.
_OF_A_USER = regex(
    r"((?<![\w-])(?:-[uUl]|--?user(?:name)?)[ =]{1,3}[\w.@\\-]{1,60}(?:,(?=\S{0,60}[^\w\s/.,-])|(?: -\S{1,60}){0,2} {1,3}(?:-[pPw]|--?pass(?:word)?)[ =]{1,3}[\"']?))([^\s\"']{4,64})"
)
_SIGNS = frozenset("!#$&*?^~")


def hide_nearby(text: str) -> str:
    """Return text without what looks like a password near a word that announces one. Linear in the text's length."""
    if "<<<" in text:
        text = _HERE.sub(lambda m: f"{m[1]}***" if _is_typed(m[2]) else m.group(), text)
    if "-" in text:
        text = _OF_A_USER.sub(
            lambda m: f"{m[1]}***" if looks_chosen(m[2]) and not is_placeholder(m[2]) else m.group(), text
        )
    if not _HINT.search(text.lower()):
        return text
    text = _CALL.sub(lambda m: _ARGUMENT.sub(lambda a: "***" if _is_typed(a[0]) else a[0], m.group()), text)
    text = _BEFORE.sub(lambda m: "***" if _is_typed(m[1]) else m.group(), text)
    text = _without_random(text)
    parts: list[str] = []
    done = scanned = 0
    for word in _WORD.finditer(text):
        line = text.find("\n", word.end(), word.end() + _FAR)
        until = line if line >= 0 else word.end() + _FAR
        weak = word.group("weak") is not None
        for value in _VALUE.finditer(text, max(scanned, word.end()), until + 64):
            if value.start() >= until:
                break
            found = value.group().rstrip(".:?")
            if _is_typed(found) and (not weak or _SIGNS & set(found)):
                parts += [text[done : value.start()], "***"]
                done = value.start() + len(found)
        scanned = max(scanned, done if weak else until)
    return "".join([*parts, text[done:]]) if parts else text


def _without_random(text: str) -> str:
    parts: list[str] = []
    done = scanned = 0
    for word in _KEY.finditer(text):
        line = text.find("\n", word.end(), word.end() + _FAR)
        until = line if line >= 0 else word.end() + _FAR
        for value in _RANDOM.finditer(text, max(scanned, word.end()), until + 128):
            if value.start() >= until:
                break
            if not value["other"] and looks_issued(value[2]):
                parts += [text[done : value.start(2)], "***"]
                done = value.end(2)
        scanned = max(scanned, until)
    return "".join([*parts, text[done:]]) if parts else text


def _is_typed(value: str) -> bool:
    return looks_typed(value) and not is_placeholder(value)
