"""The ticket in the dialect of where it is pasted: GitHub's or GitLab's Markdown, Jira's wiki markup, Slack's mrkdwn.

Everything quoted is escaped, so that a log line cannot become markup or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from hangscope.model.dataclass import dataclass
from hangscope.model.regex import regex
from hangscope.report.schema.document import Document
from hangscope.report.ticket import Block, Line, Piece, ticket


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one kind of markup writes a heading, plain and strong text, code, a pair of a table, an item and a step."""

    escape: Callable[[str], str]
    code: Callable[[str], str]
    heading: str
    strong: str
    row: str
    item: str
    step: str
    footer: str
    table_head: tuple[str, ...] = ()

    def line(self, line: Line) -> str:
        """Return a line as markup."""
        return "".join(self._piece(piece) for piece in line)

    def _piece(self, piece: Piece) -> str:
        if piece.code:
            return self.code(" ".join(piece.text.split()))
        lead = " " if piece.text[:1].isspace() else ""
        tail = " " if piece.text[-1:].isspace() else ""
        text = self.escape(" ".join(piece.text.split()))
        return lead + (self.strong % text if piece.strong else text) + tail


# What a forge or a chat would make a mention, a reference, a link or emphasis of: such words are shown as code, which can be
# pasted as it is.
# A quotation, a call with its arguments and a part in brackets are one span each.
_WORD = regex(
    r"(?<![\w'])'(?P<quote>[^\s'`|](?:[^'`|\n]|'(?=\w)){0,500})'(?!\w)|"
    r"(?P<span>[A-Za-z_][\w.]{0,60}\((?:[^()`|\n]|\([^()`|\n]{0,60}\)){0,120}\)|(?:\[[^\[\]`|\n]{1,200}\](?::(?=\[))?){1,8}(?:[:.\w]{0,40}\w)?)|"
    r"[^\s`|]+|[\s`|]+"  # a word, or what parts words
)
_CODE = regex(r"[_@<{\[]|#\d|://|www\.", re.IGNORECASE)
#: GitLab also refers with !12, ~label, %milestone, $snippet and &epic, and obeys /commands at the beginning of a line.
_GITLAB = regex(r"[_@<{\[]|[#!~%$&]\w|^/|://|www\.", re.IGNORECASE)
_BEFORE, _AFTER = "\"'(", "\"').,;:!?"  # punctuation around a word that is no part of it
_MARKDOWN = regex(r"([\\`*_{}\[\]<>#|~!@])")
_JIRA = regex(r"([\\*_{}\[\]<>#|~!@^+?-])")


def _markdown_code(text: str) -> str:
    """Return a code span; a backtick or a pipe inside cannot end it."""
    return "`" + text.replace("`", "'").replace("|", "¦") + "`"


def _jira_code(text: str) -> str:
    return "{{" + _JIRA.sub(r"\\\1", text.replace("}", ")").replace("{", "(")) + "}}"


def _slack_code(text: str) -> str:
    return "`" + _slack_plain(text.replace("`", "'")) + "`"


def _slack_plain(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _slack(text: str) -> str:
    # Slack has no escape for its marks: parted from the word, they do not pair up.
    return re.sub(r"[*_~`@]+", lambda mark: f" {mark[0]} ", _slack_plain(text))


def _by_word(
    plain: Callable[[str], str], code: Callable[[str], str], marked: re.Pattern[str] = _CODE
) -> Callable[[str], str]:
    """Return how text is written whose words are code where they would be markup, as `marked` knows them."""

    def word(match: re.Match[str]) -> str:
        text = match.group()
        if not marked.search(text):
            return plain(text)
        if whole := match["quote"] or match["span"]:
            return code(whole)
        rest = text.lstrip(_BEFORE)
        inner = rest.rstrip(_AFTER)
        if inner.count("(") > inner.count(")") and rest.startswith(inner + ")"):  # `group 0(default_pg)`
            inner += ")"
        before, after = text[: len(text) - len(rest)], rest[len(inner) :]
        return plain(before) + (code(inner) if inner else "") + plain(after)

    return lambda text: _WORD.sub(word, text)


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


_FORGE = (
    "## %s",
    "**%s**",
    "| %s | %s |",
    "- %s",
    "%d. %s",
    "<sub>hangscope %s</sub>",
    ("| | |", "| --- | --- |"),
)
_OF_JIRA = "h2. %s", "*%s*", "| *%s* | %s |", "* %s", "# %s", "~hangscope %s~"
_OF_SLACK = "*%s*", "*%s*", "• *%s:* %s", "• %s", "%d. %s", "_hangscope %s_"
DIALECTS = {
    "markdown": Dialect(_by_word(_markdown, _markdown_code), _markdown_code, *_FORGE),
    "gitlab": Dialect(_by_word(_markdown, _markdown_code, _GITLAB), _markdown_code, *_FORGE),
    "jira": Dialect(_by_word(lambda text: _JIRA.sub(r"\\\1", text), _jira_code), _jira_code, *_OF_JIRA),
    "slack": Dialect(_by_word(_slack, _slack_code), _slack_code, *_OF_SLACK),
}


def render_markdown(document: Document, dialect: str = "markdown") -> str:
    """Return the report for a ticket: `dialect` is markdown (GitHub), gitlab, jira or slack."""
    style = DIALECTS[dialect]
    title = style.escape(" ".join(document.title.split()))
    lines = [style.heading % f"hangscope: {title}", ""]
    for block in ticket(document):
        lines += [*_block(style, block), ""]
    lines.append(style.footer % style.escape(document.tool_version))
    return "\n".join(lines) + "\n"


def _block(style: Dialect, block: Block) -> list[str]:
    lines = [style.strong % style.escape(block.title), ""] if block.title else []
    lines += style.table_head if block.form == "pairs" else ()
    for number, (name, line) in enumerate(block.lines, 1):
        text = style.line(line)
        if block.form == "pairs":
            text = style.row % (name, text)
        elif block.form == "items":
            text = style.item % text
        elif block.form == "steps":
            text = style.step % ((number, text) if "%d" in style.step else text)
        lines.append(text)
    return lines


def cut_to(text: str, limit: int | None) -> str:
    """Return text of at most `limit` bytes of UTF-8, cut after a complete line, with a last line that says how many are missing."""
    if limit is None or len(text.encode()) <= limit:
        return text
    lines = text.splitlines(keepends=True)
    for kept in range(len(lines) - 1, -1, -1):
        shown = "".join(lines[:kept]) + f"[{len(lines) - kept} lines cut: the report has them]\n"
        if len(shown.encode()) <= limit:
            return shown
    return text.encode()[:limit].decode(errors="ignore")
