"""Which names say that their value is a secret: `AWS_SECRET_ACCESS_KEY`, `db.password`, `X-Auth-Token`, `clientSecret`.

In the logs of training jobs most tokens are words of a model and most keys are names of tensors or of a store, so these two words
alone prove nothing: then the value itself must look random.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache, lru_cache

from hangscope.report.masking.tables import table, words
from hangscope.report.masking.values import (
    is_class,
    is_placeholder,
    is_random,
    looks_chosen,
    looks_joined,
    words_of,
)

MAX_NAME = 80
_TOKEN_MARK = "\u0120"  # with which tokenizers begin a word


class Strength(IntEnum):
    """What a name says of its value."""

    NOTHING = 0
    MAYBE = 1  # a secret if it looks random
    LIKELY = 2  # a secret if it looks like a password
    SECRET = 3


@lru_cache(maxsize=1024)
def strength(name: str, *, in_query: bool = False) -> Strength:
    """Return what a name of at most `MAX_NAME` characters says of its value; `in_query`: it is a parameter of a URL."""
    if not name.isascii() and (found := _foreign(name.lower())):
        return found
    if name.startswith(_TOKEN_MARK) or not (parts := words_of(name)):
        return Strength.NOTHING
    *before, last = parts
    if last == "64" and len(before) > 1:  # key_b64
        *before, last = before
    if before and (
        last in ("data", "value", "hash", "base", "b")  # client-key-data, password_hash
        or (before[-1] in ("key", "token") and last in ("text", "str", "string", "raw"))
        or (before[-1] in ("secret", "password", "community") and last == "string")
    ):
        *before, last = before
    last = last.rstrip("0123456789")
    # X-Signature, and variables of the environment, are clearer than other names.
    marked, is_variable = name.lower().startswith("x-"), bool(before) and name.upper() == name
    if (
        name in ("PWD", "OLDPWD")
        or "existing" in before
        or (last.startswith("secret") and before and before[-1] in ("pull", "from", "mount", "use"))
        or last.endswith("secrets")  # a list of such names
    ):  # the name of a secret of Kubernetes
        return Strength.LIKELY
    if _is_secret_word(last, before):
        return Strength.SECRET
    if last in ("key", "keys") and (last == "key" or {"secret", "api"} & set(before)):
        return _of_key(before, marked or is_variable)
    if last == "token":
        if words("plain_tokens") & set(before):
            return Strength.NOTHING
        return Strength.SECRET if before or in_query else Strength.MAYBE
    is_pat = last == "pat" and is_variable
    if is_pat or name == "PW" or parts[-2:] in (["key", "material"], ["key", "content"]):
        return Strength.SECRET
    if last in ("pass", "pw"):
        if words("plain_pass") & set(before):
            return Strength.MAYBE
        return Strength.SECRET if words("pass_of") & set(before) or is_variable else Strength.LIKELY
    return _of_other(parts, last, before, marked or in_query or (is_variable and last == "community"))


def _foreign(name: str) -> Strength:
    """Return what a name with letters beyond ASCII says, which may be glued to the word before it."""
    if name.endswith(_ends("password")):
        return Strength.SECRET
    return Strength.LIKELY if name.endswith(_ends("key")) else Strength.NOTHING


def _is_secret_word(last: str, before: list[str]) -> bool:
    ends = _ends("secret_ends")
    return (
        last.removesuffix("s").endswith(ends)
        or last.endswith(ends)
        or last == "secrets"
        or last in words("short_password")
        or (last == "phrase" and before[-1:] == ["pass"])
        or (last == "id" and before[-2:] == ["access", "key"])
        # SSHPASS
        or any(
            last.removesuffix(end) in words("pass_of") for end in ("pass", "pw", "psk") if last.endswith(end)
        )
    )


def _of_key(before: list[str], is_clear: bool) -> Strength:
    if before[-1:] == ["password"] or before[-2:] == ["password", "secret"]:
        return Strength.MAYBE  # the key of a password in a secret of Kubernetes
    if words("secret_keys") & set(before):
        return Strength.NOTHING if "public" in before else Strength.SECRET
    if words("plain_keys") & set(before[-1:]):
        return Strength.NOTHING
    return Strength.SECRET if is_clear else Strength.MAYBE


def _of_other(parts: list[str], last: str, before: list[str], is_clear: bool) -> Strength:
    if last == "community" and is_clear:
        return Strength.SECRET
    if last in ("creds", "authkey", "community") or last in words("key"):
        return Strength.LIKELY
    if last in ("signature", "sig", "auth", "code", "credential", "ticket", "invite", "otp"):
        doubtful = Strength.NOTHING if last in ("code", "invite", "otp") else Strength.MAYBE
        return Strength.SECRET if is_clear else doubtful
    if (
        last in ("crumb", "encrypt", "login")
        or last.endswith(("token", "authkeys", "authkey"))
        or parts in (["sk"], ["secret", "id"])  # next to `ak`, `role_id`
        or (last in ("session", "seed") and before)
    ):
        return Strength.MAYBE
    return Strength.NOTHING


@cache
def _ends(name: str) -> tuple[str, ...]:
    """Return the ends of names that a list has: of keys those with letters beyond ASCII, of secrets those of other languages, too."""
    found: list[str] = table("words")[name]
    if name == "key":
        return tuple(word for word in found if not word.isascii())
    return (*found, *(table("words")["password"] if name == "secret_ends" else ()))


def names_a_secret(value: str) -> bool:
    """Return whether a value in capitals is itself the name of a secret, as in `mc alias set ALIAS URL ACCESSKEY SECRETKEY`."""
    letters = value.replace("_", "").replace("-", "")
    return (
        letters.isascii()
        and letters.isalpha()
        and letters.isupper()
        and strength(value[-MAX_NAME:]) is Strength.SECRET
    )


def is_secret(value: str, how: Strength) -> bool:
    """Return whether a value whose name says `how` is to be hidden."""
    if how is Strength.NOTHING or value.lower().rstrip("!.") in words("no_secret") or is_placeholder(value):
        return False
    if how is Strength.SECRET:
        return True
    if ":" in value.rpartition(":")[0] or is_class(value):  # the first: the key of a store
        return False
    return is_random(value) or (how is Strength.LIKELY and (looks_chosen(value) or looks_joined(value)))
