"""What a value looks like: a key that a service issued, a password that somebody chose, or a placeholder."""

from __future__ import annotations

import math
import re
from base64 import b64decode
from binascii import Error
from collections import Counter
from collections.abc import Callable, Mapping

from hangscope.model.regex import regex
from hangscope.report.masking.randomness import changes, is_mixed, is_path, is_unspeakable, kind, looks_random
from hangscope.report.masking.tables import compiled, tokens, words

MAX_LENGTH = 80
_WORDS = regex(r"[A-Z]+(?![a-z])|[A-Z]?[^\W\dA-Z_]+|\d+")
_LONG = 12  # characters of a value whose name hardly says that it is a secret
_SHORTEST = 6  # characters of a password
_ISSUED = 20  # characters of a key that a service issues
_HYPHENS = 2  # in a key that a service issues
_TURNS = 3  # from one kind of character to another
_SHORT_USER = 8  # letters of a name in a URL
_LONGEST_USER = 20  # characters of a name in a URL; more may be a token
#: A number with its unit, a path, or words joined by underscores and points: no password that somebody chose.
_PLAIN = regex(
    r"[\w.]+[(\[].*|\[.*|[-+~]?\d[\d.,:e+-]*[A-Za-z%/]{0,8}|[/~\\<(].*|[A-Za-z]:\\.*|[A-Za-z0-9]+(?:[_./-][A-Za-z0-9]+)+|[A-Za-z]+"
)
#: An address, a path, a pair, a version, a qualified name, a UUID, an address in memory, a size: no password.
_NO_PASSWORD = regex(
    r"[/\\=@:]|\*\*\*|\d\.\d|[A-Za-z_]\w{1,40}\.[A-Za-z_]\w{0,40}(?:[A-Za-z_.]|(?<!\d)\d)(?![\w.])|[a-z_]\w{0,40}\.\w{1,40}\.|[0-9a-f]{8}-[0-9a-f]{4}|0x[0-9a-fA-F]{2}|(?i:sha\d|hmac|pbkdf|argon2|25519|aes\d|md5)|[Vv]\d(?:alpha|beta)\d|^[\d.,]+[A-Za-z]{1,4}$"
)
#: A number with its unit, a path, an address, a host and port, a version, code, or what refers to another value.
_NOT_COMPOSED = regex(
    r"^(?:[-+~]?\d[\d.,:e+-]*[A-Za-z%/]{0,8}|\w[\w.-]*:\d{1,5}|[vV]?\d+(?:\.\w+)+|[\w.]+[(\[].*|"
    r"[$<{%\[(].*|.*[/\\].*|~.*|--.*|[\w-]+(?:\.[\w-]+)*\.(?:json|pem|key|crt|txt|ya?ml|toml|ini|cfg|conf|p12|py|sh|com|org|net|io|example|local|gz))",
    re.DOTALL,
)
_USER = regex(
    r"(?!(?i:sha|md|blake|file|env|http|rank|node|gpu|step|epoch|worker)\d{0,5}$)[A-Za-z_][\w.@+-]{0,40}"
)
_NUMBERED = regex(r"^[A-Za-z]+[_-]?\d{1,4}")  # the name of one of many: `rank03`
_SUMMED = regex(
    r"(?!key-)[A-Za-z_]{3,40}(?:[-_.]\w{1,40}){0,4}?[-_.](?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{64})"
)
_STATE = regex(r"(?:[A-Z](?=[a-z]{0,9}[aeiouy]|(?<=[AEIOU])[a-z])[a-z]{1,15}){2,8}")
_FILE = regex(r"/[\w.-]{1,80}\.[a-z]{2,12}$")
#: Numbers in the names of classes: `Int64Index`, `Sha256Hasher`, `X509Store`.
_SIZES = frozenset(("16", "32", "64", "128", "256", "384", "509", "512", "1024", "25519"))
_CLASS = r"[A-Z][A-Za-z0-9]{1,60}?(?:<<class_ends>>)(?:Fast)?V?\d?"


def words_of(name: str) -> list[str]:
    """Return the words of a name, in small letters: `clientSecret` has two."""
    return [word.lower() for word in _WORDS.findall(name if name.isascii() else name.lower())]


def is_placeholder(value: str, name: str = "") -> bool:
    """Return whether a value stands for one that is not shown: `***`, `${HF_TOKEN}`, or `API_KEY` of the name `--api-key`."""
    last = [word.upper() for word in _WORDS.findall(name)][-1:]
    if last and value.isupper() and last[0] in value and value.replace("_", "").isalpha():
        return True
    # In the help of a program, or how many there are
    if name == f"--{value}" or (last == ["TOKEN"] and value.isdigit() and len(value) < _ISSUED):
        return True
    return compiled("<<placeholder>>").fullmatch(value) is not None


def is_random(value: str) -> bool:
    """Return whether a value is a secret even if its name hardly says so: it looks random, typed, or made by a machine."""
    if value.lower() in words("no_secret") or is_placeholder(value):
        return False
    user, _, password = value.rpartition(":")
    # The key of a store, a name with a checksum, words, or a file
    if ":" in user or _SUMMED.fullmatch(value) or _is_of_words(value):
        return False
    if (is_path(value) and _FILE.search(value)) or compiled("<<public>>").fullmatch(value):
        return False
    return looks_typed(password) or _has_entropy(value) or (len(value) >= _LONG and looks_made(value))


def is_class(value: str) -> bool:
    """Return whether a value is the name of a class: its last word is one that classes end in, and no number in it is a long one."""
    if not compiled(_CLASS).fullmatch(value):
        return False
    return all(len(number) == 1 or number in _SIZES for number in re.findall(r"\d+", value))


def _is_of_words(value: str) -> bool:
    """Return whether a value is words with capitals and nothing between them, as programs name a state: `ImagePullBackOff`."""
    return _STATE.fullmatch(value) is not None and len(value) * 2 >= 7 * sum(map(str.isupper, value))


def looks_made(value: str) -> bool:
    """Return whether a value is a password as machines make them: capitals, small letters and mostly digits in turn."""
    part = value[:MAX_LENGTH]
    digits = any(map(str.isdigit, part))
    turns = changes(part) >= _TURNS and {"u", "l"} <= set(map(kind, part)) if digits else is_mixed(part)
    return (
        turns
        and len(part) >= _SHORTEST
        and "\\" not in part
        and (not _PLAIN.fullmatch(part) or part.isalpha())
        and not is_class(value)
    )


def looks_chosen(value: str) -> bool:
    """Return whether a value is what somebody may choose as a password: of several kinds of characters, and no number, path or words."""
    part = value[:MAX_LENGTH]
    if len(part) < _SHORTEST or (_PLAIN.fullmatch(part) and not (part.isalpha() and is_mixed(part))):
        return looks_typed(part)
    kinds = (str.islower, str.isupper, str.isdigit, lambda c: not c.isalnum())
    return sum(any(map(kind, part)) for kind in kinds) > 1 or is_mixed(part)


def looks_typed(value: str) -> bool:
    """Return whether a value is letters with digits or signs as in a password, and in no identifier, version, host, path or hash."""
    if not 8 <= len(value) <= MAX_LENGTH or _NO_PASSWORD.search(value) or value.startswith(("$", "-", "#")):
        return False
    if is_class(value):
        return False
    letters, numbers = any(map(str.isalpha, value)), re.findall(r"\d+", value)
    if any(c in "!#$&*?^~" for c in value):
        return letters and (bool(numbers) or is_mixed(value))
    if len({kind(c) for c in value} & {"u", "l", "d"}) < 3:
        return len(value) >= _LONG and value.isalpha() and is_mixed(value) and not _is_of_words(value)
    if len(value) >= _LONG and is_mixed(value):
        return True
    return len(numbers) > 1 or (len(numbers[0]) > 1 and numbers[0] not in _SIZES)


def looks_issued(value: str) -> bool:
    """Return whether a value is a key as services issue them: 32 hex digits or more, or letters and digits that alternate as in no word."""
    if re.fullmatch(r"[0-9a-f]{32,128}", value):
        return _has_entropy(value)
    # Names of models have hyphens, names of C++ functions begin with _Z.
    if len(value) < _ISSUED or value.count("-") > _HYPHENS or value.startswith("_Z"):
        return False
    if is_path(value) or is_class(value):
        return False
    return any(map(str.isdigit, value)) and is_mixed(re.sub(r"[-_+/=]", "", value))


def looks_joined(value: str) -> bool:
    """Return whether a value is words that hyphens join, as people choose them: capitals, and digits next to letters."""
    parts = value[:MAX_LENGTH].split("-")
    return (
        len(parts) > 1
        and all(part.isalnum() for part in parts)
        and any(any(map(str.isdigit, part)) and not part.isdigit() for part in parts)
        and {"u", "l"} <= {kind(c) for c in value[:MAX_LENGTH]}
    )


def looks_composed(value: str) -> bool:
    """Return whether a value may be a password where only its place says so: no plain word, number, path, version or host."""
    value = value[:MAX_LENGTH]
    return (
        len(value) >= _SHORTEST
        and any(map(str.isalpha, value))
        and _NOT_COMPOSED.fullmatch(value) is None
        and not (value.isalpha() and not {"u", "l"} <= set(map(kind, value[1:])))
    )


def is_account(value: str) -> bool:
    """Return whether a value is a user and a password: `root:XXXX`; not a key of a store, a host and its port, or a version."""
    user, _, password = value.partition(":")
    if not _USER.fullmatch(user) or ":" in password or len(password) < 4:
        return False
    return (user.lower() in words("users") and any(map(str.isalpha, password))) or (
        looks_composed(password) and not _NUMBERED.fullmatch(password)
    )


def _has_entropy(value: str) -> bool:
    """Return whether a value is of no words: a long part of letters and digits that change places often."""
    part = max(re.split(r"[^A-Za-z0-9+]", value[:256]), key=len)
    if len(part) < 16:
        part = re.sub(r"[-_]", "", value[:256]) if re.fullmatch(r"[0-9a-fA-F-]{32,36}", value) else part
    if len(part) < 16 or part.isdigit() or part.isalpha():
        return False
    counts = Counter(part)
    entropy = -sum(n / len(part) * math.log2(n / len(part)) for n in counts.values())
    return entropy >= 2.8 and (changes(part) * 5 >= len(part) or is_unspeakable(part))


def _is_private(blob: str) -> bool:
    """Return whether a run of base64 may be a secret: no words, and no public SSH key, which begins with the length and the name of its kind."""
    return is_mixed(blob) and b64decode(blob[:12])[4:7] not in (b"ssh", b"ecd", b"sk-")


def _is_account(value: str) -> bool:
    """Return whether a part of a URL holds a token or a password, and not only the name of a user."""
    user, _, password = value.partition(":")
    if not password and all(
        part.isalpha() and part.islower() and len(part) <= _SHORT_USER for part in user.split("-")
    ):
        return False
    return not password or len(user) >= _LONGEST_USER or not is_placeholder(password)


def _is_wrapped(value: str) -> bool:
    """Return whether lines hold one token: together, or the first a token by itself and the others characters in no word."""
    first, *more = compiled("<<wrap>>").split(value)
    token = "".join([first, *more])
    if not tokens().fullmatch(token):
        return False
    if tokens().fullmatch(first):
        return all(changes(line) * 4 > len(line) for line in more)
    return first.isupper() or any(map(str.isdigit, first)) or is_mixed(token)


def _is_login(value: str) -> bool:
    """Return whether base64 holds a user and a password."""
    try:
        plain = b64decode(value + "=" * (-len(value) % 4)).decode()
    except (Error, ValueError):
        return False
    pair = re.sub(r"[\0\1]", ":", plain)
    return ":" in pair and pair.isprintable()


def _is_encoded(value: str) -> bool:
    """Return whether base64 holds text."""
    try:
        return b64decode(value, validate=True).decode().isprintable()
    except (Error, ValueError):
        return False


#: The words of `looks` in the rules.
LOOKS: Mapping[str, Callable[[str], bool]] = {
    "made": looks_made,
    "chosen": looks_chosen,
    "chosen with digits": lambda value: any(map(str.isdigit, value)) and looks_chosen(value),
    "typed": looks_typed,
    "composed": looks_composed,
    "issued": looks_issued,
    "joined": looks_joined,
    "with digits": lambda value: any(map(str.isdigit, value)),
    "mixed": is_mixed,
    "upper": str.isupper,
    "random by itself": looks_random,
    "random": is_random,
    "wrapped": _is_wrapped,
    "private": _is_private,
    "account": _is_account,
    "login": _is_login,
    "encoded": _is_encoded,
}
