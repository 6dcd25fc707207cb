"""Secrets among the arguments of calls in source code: `connect("db", "me", "XXXX")`, `Client("XXXX")`, `auth=("me", "XXXX")`.

Facts: which functions take a secret by position. What the name of a function does not say, the value has to.
"""

from __future__ import annotations

import re

from hangscope.model.regex import regex
from hangscope.report.masking.key_names import (
    Strength,
    is_placeholder,
    is_secret,
    looks_chosen,
    looks_issued,
    looks_typed,
)

_ISSUED = 20  # characters of a key among the arguments of a call
_UUID = r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"
# A call that opens a connection or a session, or that encrypts.
_CALL = regex(
    r"(?i)(?:connect|log_?in|logon|auth(?!or)|cred|account|passw|bind|(?<![a-z])(?:ftp|smtp|imap|sendline)|(?-i:AES)|jwt|secret|(?:api|private|access)_?key|fernet|cipher|hmac|crypt|vault|(?P<weak>token(?!iz)|session|(?<![A-Za-z])sign))[\w.]{0,40}\([^)\n]{1,300}"
)
_ARGUMENT = regex(r"(?<=[\"'])[^\s\"'(),]{8,64}(?=[\"'])")
_LOGIN = regex(
    rf"(?i)((?:log_?in|authenticate|set_api_key|set_token)\(\s{{0,4}}[bruf]?\\*[\"'])((?:[a-z]{{2,4}}-)?{_UUID})(?=\\*[\"'])"
)
# The only key of an object that is made with it: `Exa("XXXX")`, `pyotp.TOTP("XXXX")`.
_NEW = regex(
    r"(?<![\w$])((?:[a-z_]\w{0,40}\.){0,3}(?=[A-Z])(?!\w{0,60}(?i:uuid|guid|error|exception|warning|id\(|hash|digest|version|file|path|event|node|device|artifact|dataset|tensor|model|commit|run\(|job|image|trace|span|group|store|cache))"
    rf"\w{{2,60}}\(\s{{0,4}}[bruf]?\\*[\"'])({_UUID}|[\w+/=.~-]{{20,512}})(?=\\*[\"']\s?[,)])"
)
# The second of a pair, of which the first is the user: `auth=('bob', 'XXXX')`, `smtp.login("bob", "XXXX")`.
_AUTH = regex(
    r"(?i)((?:auth|login|logon|sign_?in|authenticate|credentials?|creds)\s{0,3}[=:]?\s{0,3}[(\[]\s{0,4}[bruf]?([\"'])[^\"'\n]{1,80}\2\s{0,3},\s{0,3}[bruf]?[\"'])"
    r"([^\"'\n]{4,128})"
)


def hide_call_arguments(text: str) -> str:
    """Return text without the secrets among the arguments of calls in it. Linear in the text's length."""
    if ("(" not in text and "[" not in text) or ("'" not in text and '"' not in text):
        return text
    text = _AUTH.sub(_without_second, text)
    text = _LOGIN.sub(r"\1***", text)
    text = _NEW.sub(_without_key, text)
    return _CALL.sub(_without_arguments, text)


def _without_second(match: re.Match[str]) -> str:
    value = match[3]
    return f"{match[1]}***" if looks_chosen(value) or is_secret(value, Strength.MAYBE) else match.group()


def _without_key(match: re.Match[str]) -> str:
    return f"{match[1]}***" if is_secret(match[2], Strength.MAYBE) else match.group()


def _without_arguments(match: re.Match[str]) -> str:
    """Hide the quoted arguments that look like a key, and unless the call is of a weak word, like a password."""
    typed = match["weak"] is None

    def hidden(argument: re.Match[str]) -> str:
        value = argument.group()
        issued = len(value) >= _ISSUED and looks_issued(value)
        return "***" if (issued or (typed and looks_typed(value))) and not is_placeholder(value) else value

    return _ARGUMENT.sub(hidden, match.group())
