"""Whether characters are random, as in what a service issues: in no word, name, path, hash or number do kinds of characters alternate so."""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise

from hangscope.model.regex import regex

_LEAST = 20  # characters of capitals, small letters and digits that nothing announces
_LEAST_OF_ONE_CASE = 28  # of letters of one case and digits
_LONG, _LONGER = 24, 32  # from which on chance makes no words of them
_LETTERS = 8  # different ones
_CHARACTERS = 12  # different ones
_NUMBER = regex(r"\d+")
_UNSPEAKABLE = regex(r"(?i)[bcdfghjklmnpqrstvwxz]{6,}")
_WORD, _LONG_WORD = regex(r"[A-Z]?[a-z]{3,}|[A-Z]{4,}"), regex(r"[A-Z]?[a-z]{4,}|[A-Z]{5,}")
#: Hex digits, and hashes in base32 as Inductor and Triton write them.
_HASH = regex(r"(?:0x)?[0-9a-fA-F]+(?:U?L*)?|[a-z2-7]{51,52}|[A-Z2-7]{51,52}")
_WORDLIKE = regex(r"[A-Z]?[a-z]{3,}\d*|\d{3,}|[A-Z]{4,}")
_IN_PATH = regex(r"(?:^|/)(?:[^/]*[._-][^/]*|[A-Z]?[a-z]{3,}\d*|\d+|)(?=/|$)")
#: In the names of compiled functions, and before a checksum or the public key of age.
_NO_SECRET = regex(
    r"_Z[NTSLKG\d]|_RN|^__|(?:N|S[t_])\d{1,2}[a-z]\w{0,255}E$|^(?:(?:sha|md|blake)\w{1,4}-|age1)"
)


def kind(c: str) -> str:
    """Return the kind of a character: a digit, a capital, a small letter, or another."""
    return "d" if c.isdigit() else "u" if c.isupper() else "l" if c.isalpha() else "-"


def changes(text: str) -> int:
    """Return how often characters of another kind follow, signs aside."""
    return sum(1 for one, other in pairwise(map(kind, text)) if one != other and "-" not in one + other)


def is_mixed(text: str) -> bool:
    """Return whether capitals, small letters and digits alternate as in no word, path, hash or class name."""
    text = text[:256]
    return {kind(c) for c in text} >= {"u", "l"} and changes(text) * 10 >= 3 * len(text)


def is_unspeakable(text: str) -> bool:
    """Return whether so many consonants follow one another as in no word."""
    return _UNSPEAKABLE.search(text) is not None


def is_path(text: str) -> bool:
    """Return whether slashes part words, names with signs or numbers, as in no base64."""
    return "/" in text and _IN_PATH.search(text) is not None


@lru_cache(maxsize=4096)
def looks_random(run: str) -> bool:
    """Return whether a run of letters, digits and `+/_.~-` is a secret by itself, or has one in it. Nothing needs to announce it."""
    run = run.rstrip("=")[:256]
    if _NO_SECRET.search(run) or is_path(run):
        return False
    run = run.replace("/", "").replace("+", "")
    parts = run.replace("-", ".").replace("_", ".").replace("~", ".").split(".")
    if any(map(_is_random, parts)):
        return True
    joined = "".join(part for part in parts if not _HASH.fullmatch(part))
    return (
        not any(map(_WORDLIKE.fullmatch, parts)) and not _has_long_words(joined, 0.2) and _is_random(joined)
    )


def _is_random(part: str) -> bool:
    """Return whether letters and digits are random."""
    size, kinds = len(part), {kind(c) for c in part}
    if size < _LEAST or "d" not in kinds or _HASH.fullmatch(part):
        return False
    if kinds >= {"u", "l"}:
        return changes(part) * 20 >= 7 * size and not _has_words(part)
    letters = {c for c in part if c.isalpha()}
    return (
        size >= _LEAST_OF_ONE_CASE
        and (changes(part) * 4 >= size or is_unspeakable(part))
        and len(set(part)) >= _CHARACTERS
        and len(letters) >= _LETTERS
    )


def _has_words(part: str) -> bool:
    """Return whether words are too large a share of the letters for chance to have made them."""
    size, words = len(part), sum(map(len, _WORD.findall(part)))
    if size < _LONG:
        return words * 5 > 2 * size or len(_NUMBER.findall(part)) < 2
    if size < _LONGER:
        return words * 20 > 9 * size
    return words * 20 > 11 * size and _has_long_words(part, 0.3)


def _has_long_words(part: str, share: float) -> bool:
    return sum(map(len, _LONG_WORD.findall(part))) > share * len(part)
