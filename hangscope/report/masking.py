"""What must not leave the house: secrets in quoted text, and on request hosts, paths and user names.

Masking runs over the finished view, so that every output is masked alike.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from typing import Any

_SECRETS = (
    (
        re.compile(
            r"(?i)\b((?:[\w-]*(?:api[_-]?key|token|secret|passw(?:or)?d|credential)s?)[\"']?\s*[:=]\s*)([\"']?)[^\s\"',;&]{4,}\2"
        ),
        r"\1***",
    ),
    (re.compile(r"(?i)\b(authorization:\s*(?:bearer|basic)\s+)\S+"), r"\1***"),
    (re.compile(r"\b([a-z][a-z0-9+.-]*://)[^/\s:@]*:[^/\s@]+@"), r"\1***@"),
    (re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"), "***"),
    (re.compile(r"\b(?:ghp|gho|ghs|github_pat|hf|sk|xox[abp]|glpat)[_-][A-Za-z0-9_-]{16,}"), "***"),
    (re.compile(r"\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{5,}"), "***"),
    (re.compile(r"(?i)([?&](?:sig|signature|x-amz-[\w-]+|access_token|key)=)[^&\s]+"), r"\1***"),
)
_HINT = re.compile(
    r"(?i)key|token|secret|passw|credential|authorization|://|AKIA|ASIA|ghp|gho|ghs|github_pat|hf[_-]|sk[_-]|xox|glpat|eyJ|sig"
)


def mask(value: Any) -> Any:
    """Return plain data with every secret in its strings replaced by `***`."""
    return _walk(value, mask_text)


def mask_text(text: str) -> str:
    """Return text with every secret in it replaced by `***`."""
    if not _HINT.search(text):
        return text
    for pattern, replacement in _SECRETS:
        text = pattern.sub(replacement, text)
    return text


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

    result: dict[str, Any] = _walk(view, apply)
    return result


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {key: _walk(item, change) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_walk(item, change) for item in value]
    return value
