"""Values of names that say that they are secrets: `password=XXXX`, `"token": {"value": "XXXX"}`, `--api-key XXXX`, `| password | XXXX |`."""

from __future__ import annotations

import re

from hangscope.model.regex import regex
from hangscope.report.masking.names import MAX_NAME, Strength, is_secret, names_a_secret, strength
from hangscope.report.masking.tables import compiled, starred, table
from hangscope.report.masking.values import is_account, is_placeholder, looks_composed, words_of

_REFERENCE = "<<references>>"
#: What precedes the quoted name of a value: `config["password"]`, `get_secret("db")`, `!Ref DBPassword`.
_GETS = regex(
    r"(?:\w\[|(?i:get|read|load|fetch|find|lookup|resolve|input|prompt|credentials)\w{0,30}\()\s{0,4}[bruf]?[\"'`]$|!(?i:ref|getatt|importvalue|sub|secret|env)\s{1,4}[\"']?$"
)
_SIGNATURE = regex(r"(?<!\w)def \w{1,60}\((?:(?!\) ?(?:->|:))[^\n]){0,400}$")
_BEFORE = regex(r"(?<![\w-])(\w{2,20}|\w{0,16}cache(?=:)):? $")
_AFTER_WORD = frozenset(("key", "id", "value", "string"))  # `Secret ID: XXXX`, `primary key: XXXX`
_USER = regex(r"(?i)(?<![a-z])(?:user(?:[_-]?name)?|login|uid|email)\\*[\"']?\s?[=:]{1,2}\s?[^\n]{1,48}$")
_ACCOUNTS = tuple(
    [word] for word in ("token", "auth", "creds", "credentials", "login", "userpwd", "userpass", "ident")
)
_AUTH = regex(r"[\w.-]{1,40}/([^\s/]{4,80})")  # NEO4J_AUTH
_ITEM = regex(r"\\{0,8}[\"'`]\s{0,4},\s{0,4}[bruf]?(\\{0,8}[\"'`])")  # from one item of a list to the next
_LIST = regex(r"[\[(]\s{0,4}[bruf]?\\{0,8}[\"'`]$")
# What follows `token:` where its value is nested.
_NESTED = regex(
    r"\{(?!\{|[^{}\s:=\"']{1,128}\})|(?:value|secret|data|content|raw|plain|name)[\"']?\s{0,4}[:=]\s"
)
_HEAD = regex(r"[A-Za-z_]{1,20}:")  # the first name of a nested block
# keys within `"token": {...}`
_INNER = frozenset(("value", "val", "secret", "data", "content", "raw", "plain", "default", ""))
_REFERRING = ("name", "key")  # keys whose value is a name: `name: DB_PASSWORD, value: XXXX`
# What says that an object holds a secret, and under which keys it does: `"sensitive": true`, a private key as a JWK.
_MARKED = (
    (
        regex(
            r"(?i)(?<![\w-])(?:is_?)?(?:sensitive|secret|masked|confidential)\\*[\"']?\s{0,4}[:=]\s{0,4}\\*[\"']?true(?!\w)"
        ),
        _INNER,
    ),
    (regex(r"(?<![\w-])kty\\*[\"']?\s{0,4}[:=]"), frozenset(("d", "p", "q", "dp", "dq", "qi", "k"))),
)
_OBJECT = regex(r"\{[^{}]+")
_NEARBY = 400  # characters in which the value of another name is looked for
_SCHEME = regex(
    r"(?i)(?:basic|bearer|token|digest|negotiate|ntlm|aws4-hmac-sha256|[a-z][a-z0-9-]{2,30}(?=\s{1,4}[^\s,;]{8}))\s{1,4}"
)
_BARE = regex(r"[^\s\"'`]*(?:[\"'`](?=\w)[^\s\"'`]*)*")
_NEXT = regex(r"[,;&<](?=[\w./-]{1,60}[=:>]|$)")
_BLOCK = regex(r"(?:: ?|= )[|>][-+]?\s{0,2}\n[ \t]{1,16}$")
_NEXT_PAIR = regex(r"[,;& ][\w./-]{1,60}[=:]")
_JUDGED = 128  # so many characters of a value decide whether it is a secret


def hide_pairs(text: str) -> str:
    """Return text without the values of names that say that they are secrets. Linear in the text's length."""
    low = text.lower()
    text = _OBJECT.sub(_without_marked, text) if "{" in low else text
    for row in table("rules")["pair"]:
        if "when" not in row or compiled(row["when"]).search(low):
            text = _Pairs(text, compiled(row["pattern"])).hidden()
    return text


def _without_marked(match: re.Match[str]) -> str:
    text = match.group()
    pattern = compiled(table("rules")["pair"][1]["pattern"])
    for mark, names in _MARKED:
        text = _Pairs(text, pattern, names).hidden() if mark.search(text) else text
    return text


class _Pairs:
    """A text whose pairs are hidden one after another; the values of `names` in any case."""

    def __init__(self, text: str, pattern: re.Pattern[str], names: frozenset[str] = frozenset()) -> None:
        self.text, self.pattern, self.names = text, pattern, names
        self.spans: list[tuple[int, int]] = []  # of what is hidden
        # What an earlier name says of the values up to `until`: `name: DB_PASSWORD, value: XXXX`, `"token": {"value": "XXXX"}`.
        self.outer, self.until, self.referring = Strength.NOTHING, 0, ""

    def hidden(self) -> str:
        """Return the text without its secrets."""
        at = 0
        while pair := self.pattern.search(self.text, at):
            at = self._after(pair)
        return starred(self.text, self.spans)

    def _after(self, pair: re.Match[str]) -> int:
        """Hide the value of a pair if it is a secret, and return where the next pair is looked for."""
        text, at = self.text, pair.end()
        name, quote = pair.group(1)[-MAX_NAME:], pair.group(pair.lastindex or 1)
        how, refers = self._strength(name, pair), name.lower() in _REFERRING
        if how is Strength.NOTHING and not refers and words_of(name)[-1:] not in _ACCOUNTS:
            return at
        if how and not quote and _NESTED.match(text, at):
            self.outer, self.until = how, at + _NEARBY
            return at
        if how and not quote and text.startswith("//", at):  # the scheme of a URL
            return at
        if (
            text[pair.start() - 1 : pair.start()] == "<" and text[pair.end(1)] == ">"
        ):  # `--token <YOUR_TOKEN>`
            return at
        if how and (reference := compiled(_REFERENCE).match(text, at)):
            return reference.end()
        if how and quote and self._closes(pair, quote):
            return at
        if how and (own := compiled("<<own_type>>").match(text, at)) and self._is_signature(pair):
            return own.end()
        if how and _GETS.search(text, max(pair.start(), at - 48), at):
            return at
        quoted = 0 if quote else self._whole(pair)
        end = quoted or _end(text, at, quote, name, at + _JUDGED)
        value = text[at:end]
        if how and not quote and _HEAD.fullmatch(value):
            self.outer, self.until = how, at + _NEARBY
            return at
        is_hidden = is_secret(value, how) or self._is_account(name, value)
        is_hidden |= how is Strength.LIKELY and name.lower() == "pw" and looks_composed(value)
        # `volume "hf-token" : secret not found`
        is_said = not quote and value.isalpha() and text.startswith(('" :', "' :"), pair.end(1))
        # A list of words, or a file before another name: `["secrets", "configmaps"]`, `"/x/private.key", "mode": "0400"`
        is_said |= text[pair.end(2) : at].lstrip().startswith(",") and (
            (value.isalpha() and value.islower())
            or text[pair.start() - 1 : pair.start()] == "/"
            or text.startswith((":", " :"), end + len(quote))
        )
        is_code = is_said or (value == name.rpartition(".")[2] and "_" in value)
        if is_hidden and not (is_code or is_placeholder(value, name) or names_a_secret(value)):
            end = _end(text, at, quote, name, len(text)) if end == at + _JUDGED else end
            return self._hide(at, end, pair)
        if refers and (strength(value[-MAX_NAME:]) is Strength.SECRET or name == self.referring):
            # Of the next object the name may say that its value is none.
            self.outer, self.referring = strength(value[-MAX_NAME:]), name
            self.until = end + _NEARBY
            return end
        return at

    def _closes(self, pair: re.Match[str], quote: str) -> bool:
        """Return whether a quote ends text before a name without quotes, as in `read -p "Password: " X`."""
        begin, text = pair.start(), self.text
        line = text[max(0, begin - 120) : begin].rpartition("\n")[2]
        is_bare = text[pair.end(1)] not in "\\\"'`"
        return is_bare and line.count(quote) % 2 == 1 and text[pair.end() : pair.end() + 1] in " \n),;"

    def _is_signature(self, pair: re.Match[str]) -> bool:
        """Return whether a name is a parameter where its function is defined, so that its type or another name follows."""
        begin = pair.start()
        return _SIGNATURE.search(self.text, max(0, begin - _NEARBY), begin) is not None

    def _strength(self, name: str, pair: re.Match[str]) -> Strength:
        begin = pair.start()
        how = strength(name, in_query=begin > 0 and self.text[begin - 1] in "?&")
        if name.lower() in _AFTER_WORD and (before := _BEFORE.search(self.text, max(0, begin - 24), begin)):
            both = strength(f"{before[1]}_{name}")
            if name.lower() != "key":
                how = max(how, both if name.lower() == "value" else min(both, Strength.LIKELY))
            else:
                how = min(how, both)
        is_pass = how is Strength.LIKELY and name.lower() in ("pass", "pw")
        if is_pass and _USER.search(self.text, max(0, begin - 64), begin):
            how = Strength.SECRET
        if begin < self.until and name.lower() not in _REFERRING:
            is_inner = name.lower().removeprefix("default") in _INNER
            how = max(how, self.outer if is_inner else min(self.outer, Strength.MAYBE))
        return Strength.SECRET if name in self.names else how

    def _whole(self, pair: re.Match[str]) -> int:
        """Return where a value ends that has blanks in it: of a block of YAML, or in quotes with its name, as in `-e "PASSWORD=XX XX"`."""
        text, begin, at = self.text, pair.start(1), pair.end()
        if _BLOCK.search(text, max(begin, at - 24), at):
            return _line_end(text, at, at + _JUDGED)
        quote = text[begin - 1 : begin]
        if quote not in ("'", '"') or pair.group(2) or text[at - 1 : at] != "=":
            return 0
        end = text.find(quote, at, _line_end(text, at, at + _JUDGED))
        return 0 if end < 0 or _NEXT_PAIR.search(text, at, end) else end

    @staticmethod
    def _is_account(name: str, value: str) -> bool:
        """Return whether the value of a token is a user and a password, as in `token="root:XXXX"`, `NEO4J_AUTH=neo4j/XXXX`."""
        if words_of(name)[-1:] not in _ACCOUNTS:
            return False
        if name.isupper() and (slashed := _AUTH.fullmatch(value)):
            return looks_composed(slashed[1]) or value.startswith("neo4j/")
        return is_account(value)

    def _hide(self, start: int, end: int, pair: re.Match[str]) -> int:
        """Hide a value, and if it is the first of a list, the others."""
        text = self.text
        self.spans.append((start, end))
        is_list = _LIST.search(text, max(pair.start(), pair.end() - 24), pair.end())
        while is_list and (item := _ITEM.match(text, end)):
            end = _closing(text, item.end(), item.group(1), len(text))
            self.spans.append((item.end(), end))
        return end


def _end(text: str, start: int, quote: str, name: str, limit: int) -> int:
    """Return where a value ends, `limit` at most: at its quote, or without one at a blank or at the next pair."""
    if quote:
        return _closing(text, start, quote, limit)
    if text.startswith("{", start) and (end := text.find("}", start, limit)) > 0:
        return min(end + 1, _line_end(text, start, limit))  # ODBC
    if text.startswith("[", start) and (end := text.find("]", start, limit)) > 0:
        return min(end, _line_end(text, start, limit))
    if name.lower().endswith("authorization") and (scheme := _SCHEME.match(text, start)):
        if scheme.group()[0].lower() in "ad":  # many parts: Digest, AWS4-HMAC-SHA256
            return _line_end(text, start, limit)
        start = scheme.end()
    elif name.lower().endswith("cookie"):
        return _line_end(text, start, limit)
    end = bare.end() if (bare := _BARE.match(text, start, limit)) else start
    if following := _NEXT.search(text, start, end):
        end = following.start()
    return start + len(text[start:end].rstrip(")]},;")) if end < limit else end


def _closing(text: str, start: int, quote: str, limit: int) -> int:
    """Return where the quoted value ends that begins at `start`; at the end of its line where the quote is cut off."""
    at = start
    while (found := text.find(quote, at, limit)) >= 0:
        before = text[max(start, found - 64) : found]
        if len(quote) > 1 or (len(before) - len(before.rstrip("\\"))) % 2 == 0:
            return found
        at = found + 1
    return _line_end(text, start, limit)


def _line_end(text: str, start: int, limit: int) -> int:
    end = text.find("\n", start, limit)
    return end if end >= 0 else min(limit, len(text))
