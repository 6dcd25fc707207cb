"""Names of users, where something says that they are: `/home/alice`, `user=alice`, `su - alice`, `{"user": {"name": "alice"}}`."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hangscope.model.regex import regex

_NAME = r"([A-Za-z_][\w.-]{0,63})"
#: Words that stand behind such a word in a sentence.
_WORDS = (
    r"(?!(?:is|was|are|of|for|to|in|on|at|by|and|or|not|no|has|had|does|did|do|the|this|that|a|an|with|from|as|which|who|whose|rank|ranks|process|"
    r"processes|thread|group|groups|node|host|code|defined|function|frame|frames|mode|must|may|can|cannot|will|should|failed|none|null|"
    r"unknown|name|id|again|only|if|when|then|per|it|its|space|failed|timed|timeout|error)\b)"
)
HOME = regex(rf"((?:/homes?|/[Uu]sers?|/export/homes?|/u|\\Users\\{{0,1}})[/\\]){_NAME}")
_STATED = regex(
    rf"(?i:((?<![a-z])user[\"']?\s{{0,3}}[=:]?\s{{0,3}}\{{?\s{{0,8}}[\"']?(?:name|login|username)[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?|"
    rf"(?<![a-z])(?:user(?:[._-]?name|[._-]?id)?|logname|login|owner|uid|whoami|logged in as|author)[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?(?:\d{{1,10}}\()?"
    rf"(?!(?:name|login|username)[\"']?\s{{0,3}}[=:])))(?!\d){_NAME}"
)
_GROUPS = regex(rf"(\b(?:uid|gid|groups)=\d{{1,10}}\(){_NAME}(?=\))")
_SAID = regex(
    r"(?i:((?<![\w-])(?:su(?: -l?| --login)?|sudo -u|runuser -u|run-as|chown(?: -R)?|logged in as|login as|(?:publickey|password) for(?: user)?|"
    rf"owned by|owner|author|login|(?:for|of|by|as|from) user) [\"']?)){_WORDS}{_NAME}"
)
_TILDE = regex(rf"((?<![\w/.~])~){_NAME}(?=/)")
_LISTED = regex(rf"((?<![\w-])[bcdlps-][rwxsStT-]{{9}}[.+@]? {{1,4}}\d{{1,5}} {{1,4}}){_NAME}(?= )")
_ACCOUNT = regex(r"(?<![\w.@/-])([A-Za-z_][\w.-]{0,63})@(?=[A-Za-z0-9])")
_PATTERNS = (HOME, _STATED, _GROUPS, _SAID, _TILDE, _LISTED)
_NOBODY = frozenset({"user", "root", "name", "login", "username"})


class UserNames:
    """Hides user names in texts: where the context marks them as user names, and then the same names in paths and sentences."""

    def __init__(self, texts: Iterable[str]) -> None:
        names = {m.group(2) for text in texts for p in _PATTERNS for m in p.finditer(text)} - _NOBODY
        parts = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
        before = (
            r"(?<=[/\\~])|(?<=\buser )|(?<=\bowner )|(?<=\bsu )|(?<=\bby )|(?<=\bfor )|(?<=\bas )|(?<=\d\()"
        )
        self._known = re.compile(rf"(?i:{before})(?:{parts})(?![\w-])") if parts else None

    def hidden(self, text: str) -> str:
        """Return a text without them."""
        for pattern in _PATTERNS:
            text = pattern.sub(r"\1user", text)
        text = _ACCOUNT.sub("user@", text)
        return self._known.sub("user", text) if self._known is not None else text
