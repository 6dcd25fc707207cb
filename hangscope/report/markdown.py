"""The ticket in the dialect of where it is pasted: GitHub's or GitLab's Markdown, Jira's wiki markup, Slack's mrkdwn.

`report_templates/ticket.j2` says what is in it. Everything that it quotes is escaped, so that a log line cannot become markup or a mention.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from hangscope.knowledge.callsite import user_frame
from hangscope.model.dataclass import dataclass
from hangscope.model.incident import on_group
from hangscope.model.rankset import ranks_phrase
from hangscope.model.regex import regex
from hangscope.report import reasons
from hangscope.report.schema.document import Document
from hangscope.report.words import at_line, below_title, duration
from hangscope.verdict.claims import blocked_elsewhere
from hangscope.verdict.phrasing import sentence_case

if TYPE_CHECKING:
    from jinja2 import Template


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

    def shown(self, text: str) -> str:
        """Return text as markup of itself, with a blank where it begins or ends with one."""
        lead = " " if text[:1].isspace() else ""
        tail = " " if text[-1:].isspace() else ""
        return lead + self.escape(" ".join(text.split())) + tail


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


def _markdown(text: str) -> str:
    return _MARKDOWN.sub(r"\\\1", text)


def _markdown_code(text: str) -> str:
    """Return a code span; a backtick or a pipe inside cannot end it."""
    return "`" + text.replace("`", "'").replace("|", "¦") + "`"


def _jira(text: str) -> str:
    return _JIRA.sub(r"\\\1", text)


def _jira_code(text: str) -> str:
    return "{{" + _jira(text.replace("}", ")").replace("{", "(")) + "}}"


def _slack(text: str) -> str:
    # Slack has no escape for its marks: parted from the word, they do not pair up.
    return re.sub(r"[*_~`@]+", lambda mark: f" {mark[0]} ", escape(text, quote=False))


def _slack_code(text: str) -> str:
    return "`" + escape(text.replace("`", "'"), quote=False) + "`"


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


_FORGE_HEAD = "| | |", "| --- | --- |"
_FORGE = "## %s", "**%s**", "| %s | %s |", "- %s", "%d. %s", "<sub>hangscope %s</sub>", _FORGE_HEAD
_OF_JIRA = "h2. %s", "*%s*", "| *%s* | %s |", "* %s", "# %s", "~hangscope %s~"
_OF_SLACK = "*%s*", "*%s*", "• *%s:* %s", "• %s", "%d. %s", "_hangscope %s_"
DIALECTS = {
    "markdown": Dialect(_by_word(_markdown, _markdown_code), _markdown_code, *_FORGE),
    "gitlab": Dialect(_by_word(_markdown, _markdown_code, _GITLAB), _markdown_code, *_FORGE),
    "jira": Dialect(_by_word(_jira, _jira_code), _jira_code, *_OF_JIRA),
    "slack": Dialect(_by_word(_slack, _slack_code), _slack_code, *_OF_SLACK),
}


def render_markdown(document: Document, dialect: str = "markdown") -> str:
    """Return the report for a ticket: `dialect` is markdown (GitHub), gitlab, jira or slack."""
    style = DIALECTS[dialect]
    warnings = [f"{w.file}: {w.message}" if w.file else w.message for w in document.warnings]
    body = _template(dialect).render(document=document, verdict=document.verdict, warnings=warnings)
    head = style.heading % f"hangscope: {style.shown(document.title.strip())}"
    return f"{head}\n\n{body}{style.footer % style.escape(document.tool_version)}\n"


@cache
def _template(dialect: str) -> Template:
    """Return the template, which escapes for a dialect whatever it shows that is no markup of it yet.

    `Markup` is the type by which jinja2 knows text that is escaped already. Only what `shown`, `escape` or `code` of the dialect has
    escaped gets it here, with the dialect's own marks around it: nothing of a job becomes markup without passing one of these.
    """
    from markupsafe import Markup

    from hangscope.report.html.templates import TICKET, own_environment

    style = DIALECTS[dialect]

    def shown(value: Any) -> Markup:
        return value if isinstance(value, Markup) else Markup(style.shown(str(value)))

    def row(name: str, caller: Callable[[], Markup]) -> Markup:
        line = caller()
        return Markup(f"{style.row % (name, line)}\n" if line else "")

    def step(number: int, text: str) -> Markup:
        return Markup(style.step % ((number, shown(text)) if "%d" in style.step else shown(text)))

    made = own_environment(shown)
    made.globals.update(
        code=lambda text: Markup(style.code(" ".join(text.split()))),
        strong=lambda text: Markup(style.strong % shown(text)),
        item=lambda line: Markup(style.item % shown(line)),
        table_head=[Markup(line) for line in style.table_head],
        row=row,
        step=step,
        in_it=_in_it,
        since=_since,
        reasons=reasons,
    )
    shared = (at_line, below_title, on_group, ranks_phrase, sentence_case, user_frame)
    made.globals.update({function.__name__: function for function in shared})
    return made.get_template(TICKET)


def _in_it(document: Document) -> str:
    verdict = document.found
    behind = set(verdict.waiting_ranks).difference(verdict.in_call)
    if not behind or not verdict.op or not verdict.in_call:
        return ""
    over = document.status == "no_hang"
    more = "waited elsewhere" if over else blocked_elsewhere(verdict.wait_ends, behind)
    return f"{ranks_phrase(verdict.in_call)}; {len(behind):,} more {more}"


def _since(document: Document) -> str:
    since, page = reasons.standstill(document), document.page
    strip = page.strip if page is not None else None
    if strip is not None and strip.stalled_s is not None and ", for " not in since:
        since += f"{', ' if since else ''}for {duration(strip.stalled_s)}"
    return since


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
