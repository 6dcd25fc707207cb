"""The terminal report: one screen, like a compiler's diagnosis: message, labels, notes, help."""

from __future__ import annotations

import re
import shutil
import textwrap
from collections.abc import Mapping
from typing import Any

from hangscope.align.rankset import ranks_phrase
from hangscope.report.reading import clean

_COLOURS = {"error": "1;31", "warning": "1;33", "ok": "1;32", "label": "1;36", "dim": "2", "bold": "1"}
MIN_WIDTH, MAX_WIDTH = 60, 110


def render_text(
    view: Mapping[str, Any], *, color: bool = False, width: int | None = None, verbose: bool = False
) -> str:
    """Return the report for a terminal; `width` defaults to the terminal's. `verbose` shows all evidence and warnings."""
    return _Screen(clean(view), color, width or shutil.get_terminal_size((100, 24)).columns, verbose).render()


class _Screen:
    def __init__(self, view: Mapping[str, Any], color: bool, width: int, verbose: bool) -> None:
        self.view, self.color, self.verbose = view, color, verbose
        self.width = max(MIN_WIDTH, min(MAX_WIDTH, width))
        self.lines: list[str] = []

    def render(self) -> str:
        verdict = self.view.get("verdict")
        status = self.view["status"]
        if self.view["partial"]["is_partial"]:  # before any claim
            self.put(f"{self.paint('partial data', 'warning')}: {self.view['partial']['text']}", indent="  ")
        headline = (
            self.view["headline"].removeprefix("Inconclusive: ").removeprefix("No hang: ")
        )  # the head says so
        if verdict:
            style = "error" if status == "hang" else "warning"
            head = f"{'hang' if status == 'hang' else status}[{verdict['cause']}]"
            self.put(f"{self.paint(head, style)}: {headline}", indent="  ")
            self.where(verdict)
            self.notes(verdict)
            self.help(verdict)
        else:
            self.put(
                f"{self.paint(status, 'ok' if status == 'no_hang' else 'warning')}: {headline}", indent="  "
            )
            sources = self.view["sources"].items()
            read = ", ".join(f"{n} {kind}{'s' if n != 1 else ''}" for kind, n in sources if n) or "nothing"
            self.labelled("read", f"{read}, of {self.view['world_size']} ranks")
            for text in self.view.get("missing", []):
                self.labelled("missing", text)
        self.warnings()
        return "\n".join(self.lines) + "\n"

    def where(self, verdict: Mapping[str, Any]) -> None:
        location, waiting = verdict.get("location"), verdict.get("waiting_call")
        if location:
            who = f"rank {location['rank']}" if location.get("rank") is not None else "one side"
            call = verdict.get("culprit_call") or {}
            places = {(frame["file"], frame["line"]) for frame in call.get("frames") or []}
            tail = ""
            if call.get("op") and (not places or (location["file"], location["line"]) in places):
                tail = f", {'in' if call.get('seq') == verdict.get('seq') else 'last call'} {call['op']}" + (
                    f" seq {call['seq']}" if call.get("seq") is not None else ""
                )
            self.put(
                f"  {self.paint('-->', 'label')} {location['file']}:{location['line']} in {location['function']}  ({who}{tail})",
                indent="      ",
            )
        frame = _user_frame(waiting, self.view)
        if waiting and verdict["in_call"]:
            ranks = ranks_phrase(verdict["in_call"])
            at = f"{frame['file']}:{frame['line']} in {frame['name']}" if frame else "no frame recorded"
            self.put(
                f"  {self.paint('-->', 'label')} {at}  ({ranks} waiting in {waiting['op'] or 'a call'})",
                indent="      ",
            )
        explains = verdict["explains"]
        if explains["of"]:
            self.labelled(
                "explains",
                f"{explains['ranks']} of {explains['of']} waiting rank{'s' if explains['of'] > 1 else ''}",
            )

    def notes(self, verdict: Mapping[str, Any]) -> None:
        shown = (
            verdict["evidence"]
            if self.verbose
            else [e for e in verdict["evidence"] if e["stance"] == "for"][:5]
        )
        for item in shown:
            source = item.get("source")
            at = (
                f"  [{source['file']}{':' + str(source['line']) if source.get('line') else ''}]"
                if source and source.get("file")
                else ""
            )
            word = {"for": "note", "against": "against", "missing": "missing"}[item["stance"]]
            self.labelled(word, item["text"] + at)
        if not self.verbose:
            for item in [e for e in verdict["evidence"] if e["stance"] == "against"][:2]:
                self.labelled("against", item["text"])
        reasons = "; ".join(self.view.get("confidence_why") or [])
        self.labelled("confidence", f"{verdict['confidence']}" + (f" ({reasons})" if reasons else ""))
        for item in verdict["alternatives"]:
            self.labelled("or", f"{item['cause']}: {item['why']}")

    def help(self, verdict: Mapping[str, Any]) -> None:
        for advice in verdict["advice"]:
            self.labelled("help", advice)

    def warnings(self) -> None:
        warnings = self.view["warnings"]
        for item in warnings if self.verbose else warnings[:3]:
            at = f"{item['file']}: " if item.get("file") else ""
            self.labelled(
                "warning", f"{at}{item['message']}" + (f" ({item['hint']})" if item.get("hint") else "")
            )
        if len(warnings) > 3 and not self.verbose:
            self.labelled("warning", f"{len(warnings) - 3} more; -v shows them")

    def labelled(self, label: str, text: str) -> None:
        style = {"help": "ok", "warning": "warning", "against": "warning"}.get(label, "label")
        self.put(f"   {self.paint('=', 'dim')} {self.paint(label + ':', style)} {text}", indent="       ")

    def put(self, text: str, *, indent: str) -> None:
        painted = len(text) - len(_plain(text))
        wrapped = textwrap.wrap(
            text,
            self.width + painted,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
            drop_whitespace=True,
            replace_whitespace=True,
        )
        if wrapped and text.startswith(" "):
            lead = text[: len(text) - len(text.lstrip(" "))]
            wrapped[0] = lead + wrapped[0].lstrip(" ")
        self.lines += wrapped

    def paint(self, text: str, style: str) -> str:
        return f"\x1b[{_COLOURS[style]}m{text}\x1b[0m" if self.color else text


def _plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def _user_frame(call: Mapping[str, Any] | None, view: Mapping[str, Any]) -> Mapping[str, Any] | None:
    if not call:
        return None
    stack = (view.get("stacks") or {}).get("waiting") or {}
    for frame in stack.get("frames") or []:
        if frame.get("user"):
            found: Mapping[str, Any] = frame
            return found
    return None
