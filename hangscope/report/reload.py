"""A verdict read back from a report's plain data, for reports that were made in another process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hangscope.incident import Alternative, CallRef, Evidence, Frame, Group, Location, Source, Verdict


def verdict_from_view(view: Mapping[str, Any]) -> Verdict | None:
    """Return the verdict that a view holds, or None."""
    raw = view.get("verdict")
    if raw is None:
        return None
    group, location = raw["group"], raw["location"]
    return Verdict(
        cause=raw["cause"],
        confidence=raw["confidence"],
        culprit_ranks=tuple(raw["culprit_ranks"]),
        category=raw["category"],
        summary=raw["summary"],
        group=Group(
            -1, group["name"], group["desc"], tuple(group["ranks"]), group["members_known"], group["role"]
        )
        if group
        else None,
        op=raw["op"],
        seq=raw["seq"],
        is_p2p=raw["is_p2p"],
        waiting_ranks=tuple(raw["waiting_ranks"]),
        in_call=tuple(raw["in_call"]),
        explained=raw["explains"]["ranks"],
        culprit_call=_call(raw["culprit_call"]),
        waiting_call=_call(raw["waiting_call"]),
        location=Location(location["file"], location["line"], location["function"], location["rank"])
        if location
        else None,
        evidence=tuple(
            Evidence(
                e["kind"],
                e["text"],
                e["rank"],
                Source(e["source"]["file"], e["source"]["line"]) if e["source"] else None,
                e["stance"],
            )
            for e in raw["evidence"]
        ),
        advice=tuple(raw["advice"]),
        alternatives=tuple(Alternative(a["cause"], a["why"]) for a in raw["alternatives"]),
        fingerprint=raw["fingerprint"],
        deciding=tuple(raw["deciding"]),
        api=raw["api"],
        since=None if raw["since"] is None else int(raw["since"]),
        until=None if raw["until"] is None else int(raw["until"]),
    )


def _call(raw: Mapping[str, Any] | None) -> CallRef | None:
    if raw is None:
        return None
    return CallRef(
        raw["op"],
        raw["seq"],
        tuple(Frame(f["name"], f["file"], f["line"]) for f in raw["frames"]),
        tuple(tuple(s) for s in raw["sizes"]),
        tuple(raw["dtypes"]),
    )
