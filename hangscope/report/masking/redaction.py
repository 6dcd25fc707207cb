"""What is hidden on request: hosts, paths and user names, wherever a value holds them.

Values are changed, never the words of the report itself: the name of a host cannot change a key, a status or a cause.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable
from typing import Any

from hangscope.report.masking.tables import compiled, table

#: Fields whose words are the contract's own.
CONTRACT = frozenset((
    "schema", "status", "cause", "confidence", "rank_confidence", "cause_confidence", "what", "category", "state", "absence",
    "kind", "role", "op", "stance", "code", "fingerprint", "tool_version", "what_set_aside", "api", "form", "dtype", "dtypes",
))  # fmt: skip
_USER = r"([A-Za-z_][\w.-]{0,63})"
_NOBODY = frozenset({"user", "root", "name", "login", "username"})


class Redaction:
    """Hides what `what` says (any of hosts, paths, users) in one report.

    `hosts` are those that are known from the inputs; others, and users, are found in the texts.
    """

    def __init__(self, texts: Iterable[str], what: Collection[str], hosts: Iterable[str] = ()) -> None:
        known = list(texts)
        self._hosts = _Hosts(known, set(hosts)) if "hosts" in what else None
        self._steps: list[Callable[[str], str]] = [self._hosts.hidden] if self._hosts is not None else []
        self._steps += [_Users(known).hidden] if "users" in what else []
        self._steps += [_without_paths] if "paths" in what else []

    def text(self, text: str) -> str:
        """Return a text with its secrets masked."""
        if self._hosts is not None and text in self._hosts.numbers:
            return self._hosts.numbers[text]
        for step in self._steps:
            text = step(text)
        return text


class _Hosts:
    """Hosts become host-1, host-2, ... in the order of their names.

    A name may be any word, such as `rank`: one without a digit or a dot is hidden where something says that it is a host.
    """

    def __init__(self, texts: Iterable[str], known: set[str]) -> None:
        self.data = data = table("redaction")["hosts"]
        for text in texts:
            found = [name for pattern in data["named"] for name in compiled(pattern).findall(text)]
            known.update(name for name in found if not compiled(data["file"]).search(name))
        known = {name for name in known if len(name) > 1 and name != "localhost" and not _is_address(name)}
        short = {name.split(".")[0] for name in known if "." in name}
        names = sorted(known | {name for name in short if _is_no_word(name)})
        self.numbers = {name: f"host-{number}" for number, name in enumerate(names, 1)}
        self._lowered = {name.lower(): number for name, number in reversed(self.numbers.items())}
        self._anywhere = _any_of([n for n in names if _is_no_word(n)], r"(?i)(?<![\w-])()")
        self._after_a_word = _any_of([n for n in names if not _is_no_word(n)], f"({data['before_word']})")

    def hidden(self, text: str) -> str:
        """Return a text without hosts and their addresses."""
        for pattern in (self._anywhere, self._after_a_word):
            text = pattern.sub(self._numbered, text) if pattern is not None else text
        text = compiled(self.data["list"]).sub("hosts", text)
        text = compiled(self.data["address"]).sub(lambda m: "ip" if _is_address(m[0]) else m[0], text)
        return compiled(self.data["address_v4"]).sub("ip", text)

    def _numbered(self, match: re.Match[str]) -> str:
        before, name = match.groups()
        return before + (self.numbers.get(name) or self._lowered[name.lower()])


class _Users:
    """User names become `user`: where the context marks them, and then the same names in paths and sentences."""

    def __init__(self, texts: Iterable[str]) -> None:
        data: dict[str, Any] = table("redaction")["users"]
        self._patterns = [compiled(f"({before}){_USER}") for before in (data["home"], *data["before"])]
        self._account = compiled(data["account"])
        names = {m[2] for text in texts for p in self._patterns for m in p.finditer(text)} - _NOBODY
        self._known = _any_of(sorted(names), f"((?i:{data['before_known']}))")

    def hidden(self, text: str) -> str:
        """Return a text without them."""
        for pattern in self._patterns:
            text = pattern.sub(r"\1user", text)
        text = self._account.sub("user@", text)
        return self._known.sub("user", text) if self._known is not None else text


def _without_paths(text: str) -> str:
    """Return a text in which only the last part of each path stays."""
    home = compiled(f"({table('redaction')['users']['home']}){_USER}(?=([/\\\\]?))")
    text = home.sub(lambda match: match[0] if match[3] else f"{match[1]}user", text)
    for pattern in table("redaction")["paths"]["hidden"]:
        text = compiled(pattern).sub(lambda match: match[1] if match.re.groups else "", text)
    return text


def _any_of(names: list[str], before: str) -> re.Pattern[str] | None:
    """Return the pattern of any of these names, the longest first, after something; None where there are none."""
    parts = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.compile(rf"{before}({parts})(?![\w-])") if parts else None


def _is_no_word(name: str) -> bool:
    """Return whether a host's name cannot be a word of a sentence."""
    return any(c.isdigit() for c in name) or "." in name or ("-" in name and len(name) > 5)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
