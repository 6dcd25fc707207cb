"""What is hidden on request: hosts, paths and user names."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

from hangscope.report.masking.walk import change_texts


def redact(view: dict[str, Any], what: Collection[str]) -> dict[str, Any]:
    """Return the view without hosts, paths or users, whichever of these words `what` holds.

    Hosts become host-1, host-2, ... in the order of ranks, addresses become ip; of paths only the last part stays;
    user names are those of home directories.
    """
    steps: list[Callable[[str], str]] = []
    if "hosts" in what:
        names = {str(row["host"]) for row in view["ranks"] if row.get("host")}
        names |= {
            str(row["host"]) for row in (view.get("verdict") or {}).get("culprits", ()) if row.get("host")
        }
        numbered = {name: f"host-{i}" for i, name in enumerate(sorted(names), 1)}
        pattern = (
            re.compile("|".join(re.escape(n) for n in sorted(numbered, key=len, reverse=True)))
            if numbered
            else None
        )
        address = re.compile(r"\b\d{1,3}(?:\.\d{1,3}){3}\b")
        steps.append(
            lambda text: address.sub(
                "ip", pattern.sub(lambda m: numbered[m.group()], text) if pattern else text
            )
        )
    if "paths" in what:
        path = re.compile(r"(?<![\w:/])/(?:[\w.@+-]+/)+(?=[\w.@+-])")
        steps.append(lambda text: path.sub("", text))
    if "users" in what:
        home = re.compile(r"((?:/home|/Users)/)[^/\s]+")
        steps.append(lambda text: home.sub(r"\1user", text))

    def apply(text: str) -> str:
        for step in steps:
            text = step(text)
        return text

    result: dict[str, Any] = change_texts(view, apply)
    return result
