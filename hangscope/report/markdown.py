"""The Markdown report for a ticket: short, with the evidence quoted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from hangscope.align.rankset import ranks_phrase
from hangscope.report.reading import clean

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!@])")
# What a forge makes a mention, a reference or a link of after Markdown is done, escaped or not: a word joiner, which is not seen,
# parts it.
_LINKED = re.compile(r"(@)(?=[\w-])|(#)(?=\d)|(:)(?=//)|(?<![a-z])(www)(?=\.)", re.IGNORECASE)


def render_markdown(view: Mapping[str, Any]) -> str:
    """Return the report as Markdown. Everything quoted is escaped, so that a log line cannot become markup or a mention."""
    view = clean(view)
    verdict = view.get("verdict")
    lines = [f"## hangscope: {_plain(view['headline'])}", ""]
    if view["partial"]["is_partial"]:
        lines += [f"**Partial data:** {_plain(view['partial']['text'])}", ""]
    if verdict:
        lines += [
            "| | |",
            "| --- | --- |",
            *(f"| {name} | {value} |" for name, value in _facts(verdict, view)),
            "",
        ]
        lines += _section("Why", [_item(e) for e in verdict["evidence"] if e["stance"] == "for"][:8])
        lines += _section(
            "Against, and missing", [_item(e) for e in verdict["evidence"] if e["stance"] != "for"][:6]
        )
        lines += _section("Do next", [_plain(a) for a in verdict["advice"]], ordered=True)
        lines += _section(
            "Alternatives", [f"`{a['cause']}`: {_plain(a['why'])}" for a in verdict["alternatives"]]
        )
    else:
        sources = ", ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in view["sources"].items() if n)
        lines += [f"Read: {sources or 'nothing'}, of {view['world_size']} ranks.", ""]
        lines += _section("Collect next time", [_plain(m) for m in view.get("missing", [])])
    warnings = [
        _plain(f"{w['file']}: {w['message']}" if w.get("file") else w["message"]) for w in view["warnings"]
    ]
    lines += _section("Warnings", warnings[:6])
    lines.append(f"<sub>hangscope {_plain(view['tool_version'])}</sub>")
    return "\n".join(lines) + "\n"


def _facts(verdict: Mapping[str, Any], view: Mapping[str, Any]) -> list[tuple[str, str]]:
    rows = [
        ("Cause", f"`{verdict['cause']}` ({verdict['category']})"),
        ("Confidence", _confidence(verdict, view)),
    ]
    if verdict["culprits"]:
        named = ", ".join(
            f"rank {c['rank']}" + (f" on {_plain(str(c['host']))}" if c.get("host") else "")
            for c in verdict["culprits"][:8]
        )
        rows.append(
            ("Who", named if len(verdict["culprit_ranks"]) <= 8 else ranks_phrase(verdict["culprit_ranks"]))
        )
    else:
        rows.append(("Who", "nobody is named"))
    location = verdict.get("location")
    if location:
        rows.append(
            (
                "Where",
                f"{_code(location['file'] + ':' + str(location['line']))} in {_code(location['function'])}",
            )
        )
    if verdict.get("op"):
        seq = f" seq {verdict['seq']}" if verdict.get("seq") is not None else ""
        group = verdict.get("group")
        rows.append(
            (
                "What",
                f"{_code(verdict['op'])}{seq}" + (f" on group {_plain(_label(group))}" if group else ""),
            )
        )
    if verdict["waiting_ranks"]:
        explains = verdict["explains"]
        rows.append(
            (
                "Waiting",
                f"{ranks_phrase(verdict['waiting_ranks'])}; the root explains {explains['ranks']} of {explains['of']}",
            )
        )
        others = len(verdict["waiting_ranks"]) - len(verdict["in_call"])
        if others and verdict.get("op"):
            rows.append(("In that call", f"{ranks_phrase(verdict['in_call'])}; {others:,} more wait behind"))
    rows.append(("Fingerprint", f"`{verdict['fingerprint']}`"))
    return rows


def _confidence(verdict: Mapping[str, Any], view: Mapping[str, Any]) -> str:
    reasons = "; ".join(view.get("confidence_why") or [])
    return str(verdict["confidence"]) + (f" ({_plain(reasons)})" if reasons else "")


def _label(group: Mapping[str, Any]) -> str:
    name, desc = str(group["name"]), str(group["desc"])
    return f"{name} ({desc})" if desc and desc != name else name


def _section(title: str, items: list[str], *, ordered: bool = False) -> list[str]:
    if not items:
        return []
    return [
        f"**{title}**",
        "",
        *(f"{f'{i}.' if ordered else '-'} {item}" for i, item in enumerate(items, 1)),
        "",
    ]


def _item(evidence: Mapping[str, Any]) -> str:
    source = evidence.get("source")
    at = (
        f" ({_code(source['file'] + (':' + str(source['line']) if source.get('line') else ''))})"
        if source and source.get("file")
        else ""
    )
    word = "" if evidence["stance"] == "for" else f"*{evidence['stance']}:* "
    return f"{word}{_plain(evidence['text'])}{at}"


def _plain(text: str) -> str:
    """Return text with Markdown's special characters escaped, on one line."""
    return _LINKED.sub(
        lambda match: match.group() + "\u2060", _SPECIAL.sub(r"\\\1", " ".join(str(text).split()))
    )


def _code(text: str) -> str:
    """Return text as inline code; a backtick or a pipe inside cannot end it."""
    return "`" + " ".join(str(text).split()).replace("`", "'").replace("|", "¦") + "`"
