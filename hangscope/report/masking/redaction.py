"""What is hidden on request: hosts, paths and user names, wherever a value holds them.

Values are changed, never the words of the report itself: what a host is called cannot change a key, a status or a cause.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Collection, Iterable

from hangscope.model.regex import regex
from hangscope.report.masking.user_names import HOME, UserNames

# Fields whose words are the contract's own.
CONTRACT = frozenset(
    {
        "schema", "status", "cause", "confidence", "rank_confidence", "cause_confidence", "what", "category", "state", "absence", "kind", "role", "op", "stance", "code",
        "fingerprint", "tool_version", "what_set_aside", "api", "form", "dtype", "dtypes",
    }
)  # fmt: skip
_NAMED = regex(
    r"(?i:\b(?:host(?:name)?|node(?:name|list)?|master_addr|address|server|endpoint)[\"']?\s{0,3}[=:]\s{0,3}[\"']?|\bon (?:host|node) |"
    r"\bhostname (?!(?:is|was|of|for|to|in|and|or|not|does|did|could|cannot|can|must|mismatch|resolution|lookup|verification|from|as|the|"
    r"should|has|given|used|changed|unknown|invalid)\b)[\"']?|"
    r"\bremote=\[|\bpeer |\bsrun: error: )([A-Za-z][\w-]{0,62}(?:\.[\w-]{1,63}){0,8})"
)
# Names with a number, of which a word before them says that they are hosts, or that only schedulers and clouds give.
_NUMBERED = regex(
    r"(?i:\b(?:on|node|host|hostname|server|machine) )(?!(?:rank|cuda|step|port|group|seq|epoch|device)s?\d*\b)((?=[A-Za-z-]{0,60}\d)[A-Za-z][\w-]{0,62})|"
    r"\b(nid\d{4,8}|ip-\d{1,3}-\d{1,3}-\d{1,3}-\d{1,3})\b"
)
_LISTED = regex(r"(?<![\w-])[A-Za-z][A-Za-z-]{0,40}\[\d[\d,-]{0,400}\]")
_PORT = regex(r"(?://|(?<![\w./:-]))([A-Za-z][\w-]{0,62}(?:\.[\w-]{1,63}){0,8})(?=:\d{2,5}(?![\w:]))")
_DOMAIN = regex(
    r"(?<![\w./-])([A-Za-z0-9][\w-]{0,62}(?:\.[\w-]{1,63}){0,6}\.(?:cluster|local|internal|intranet|lan|corp|private|svc|cloud|"
    r"com|net|org|edu|gov|io|ai|example|test))(?![\w-])"
)
_SOURCE = regex(r"\.(?:py|pyx|c|cc|cpp|cu|cuh|h|hpp|rs|go|log|txt|out|err|json|yaml|html)$")
_IPV4 = regex(r"(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]*\w)")
_IPV6 = regex(
    r"(?<![\w:])(?=[0-9A-Fa-f:]{0,40}:)[0-9A-Fa-f:]{2,45}(?:(?<=:)\d{1,3}(?:\.\d{1,3}){3})?(?:%\w{1,16})?(?![\w:])(?!\.\d)"
)
_FILE_URL = regex(r"\bfile://(?=/)")
_PUBLIC = r"(?:[\w-]{1,40}\.){0,3}(?:pytorch\.org|python\.org|github\.com|huggingface\.co|nvidia\.com)/"
_URL = regex(rf"(?<![\w+.-])([a-z][a-z0-9+]{{1,20}})://(?!{_PUBLIC})[^\s\"'<>]*/(?=[^\s\"'<>/])")
_QUOTED = regex(r"(?<=[\"'])/[^\"'\n]{0,1000}/(?=[^\"'\n/])")
_PATH = regex(r"(?<![\w/])(?:/|(?<!:)/{2,8})(?:[\w.@+~-]+/{1,8})+(?=[\w.@+-])")
_RELATIVE = regex(
    r"(?<![\w./@+~:-])(?:[\w.@+~-]+/)+(?=[\w@+-]+\.[A-Za-z]\w{0,5}(?!\w))|"
    r"(?<![\w./@+~:-])(?:[A-Za-z][\w.-]*/){2,}(?=[A-Za-z][\w-])"
)
_WINDOWS = regex(r"(?<!\w)(?:[A-Za-z]:|\\\\[\w.-]{1,80})\\{1,2}(?:[^\\\s\"'<>|:]+\\{1,2})*(?=[^\\\s])")


class Redaction:
    """Hides what `what` says (any of hosts, paths, users) in one report; hosts become host-1, host-2, ... in the order of their names.

    `hosts` are those that are known from the inputs; others are found in the texts. Of paths only the last part
    stays. `hosts` may be any words, such as `rank`: one without a digit or a dot is hidden where something says that it is a host.
    """

    def __init__(self, texts: Iterable[str], what: Collection[str], hosts: Iterable[str] = ()) -> None:
        steps: list[Callable[[str], str]] = []
        known = list(texts)
        if "hosts" in what:
            self._learn(known, set(hosts))
            steps.append(self._without_hosts)
        if "users" in what:
            steps.append(UserNames(known).hidden)
        if "paths" in what:
            steps.append(self._without_paths)
        self._steps = steps

    def text(self, text: str) -> str:
        """Return a text without them."""
        if text in self._numbers:
            return self._numbers[text]
        for step in self._steps:
            text = step(text)
        return text

    _numbers: dict[str, str] = {}  # noqa: RUF012 (replaced, never changed)
    _lowered: dict[str, str] = {}  # noqa: RUF012
    _anywhere: re.Pattern[str] | None = None
    _said: re.Pattern[str] | None = None

    def _learn(self, texts: Iterable[str], known: set[str]) -> None:
        for text in texts:
            for pattern in (_NAMED, _PORT, _DOMAIN, _NUMBERED):
                found = (next(filter(None, match.groups())) for match in pattern.finditer(text))
                known |= {name for name in found if not _SOURCE.search(name)}
        known = {name for name in known if len(name) > 1 and name != "localhost" and not _is_address(name)}
        short = {name.split(".")[0] for name in known if "." in name}
        whole = sorted(known | {name for name in short if _is_telling(name)})
        self._numbers = {name: f"host-{number}" for number, name in enumerate(whole, 1)}
        self._lowered = {name.lower(): number for name, number in reversed(self._numbers.items())}
        telling = sorted((n for n in whole if _is_telling(n)), key=len, reverse=True)
        words = sorted((n for n in whole if not _is_telling(n)), key=len, reverse=True)
        if telling:
            self._anywhere = re.compile(rf"(?i)(?<![\w-])(?:{'|'.join(map(re.escape, telling))})(?![\w-])")
        if words:
            self._said = re.compile(
                rf"(?i:(\bon |\bhost(?:name)?[=: ]+|\bnode(?:name)?[=: ]+|//|\bpeer |@))({'|'.join(map(re.escape, words))})(?![\w-])"
            )

    def _without_hosts(self, text: str) -> str:
        if self._anywhere is not None:
            text = self._anywhere.sub(self._number, text)
        if self._said is not None:
            text = self._said.sub(
                lambda m: (
                    m.group(1) + self._numbers[m.group(2)] if m.group(2) in self._numbers else m.group()
                ),
                text,
            )
        text = _LISTED.sub("hosts", text)
        text = _IPV6.sub(lambda m: "ip" if _is_address(m.group()) else m.group(), text)
        return _IPV4.sub("ip", text)

    def _number(self, match: re.Match[str]) -> str:
        name = match.group()
        return self._numbers.get(name) or self._lowered[name.lower()]

    def _without_paths(self, text: str) -> str:
        text = HOME.sub(
            lambda m: m.group() if text[m.end() : m.end() + 1] in ("/", "\\") else m.group(1) + "user", text
        )
        text = _PATH.sub("", _QUOTED.sub("", _URL.sub(r"\1://", _FILE_URL.sub("", text))))
        return _RELATIVE.sub("", _WINDOWS.sub("", text))


def _is_telling(name: str) -> bool:
    """Return whether a host's name cannot be a word of a sentence."""
    return any(c.isdigit() for c in name) or "." in name or ("-" in name and len(name) > 5)


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    return True
