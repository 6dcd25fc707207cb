"""Both sides of the divergence: whose call, which call, and the stack frames that tell them apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hangscope.report.reading import cut, mapping, mappings, rank_phrase, rank_text, text

FIRST_FRAMES = 3
# What tells library code from user code where the report does not say which a frame is.
_LIBRARY = ("site-packages/", "dist-packages/", "/lib/python", "<frozen ", "<string>")


@dataclass(frozen=True, slots=True)
class FrameLine:
    """One stack frame: `train.py:87`, the function, the path, whether it is user code, whether it differs."""

    place: str
    name: str
    path: str
    user: bool
    differs: bool


@dataclass(frozen=True, slots=True)
class Side:
    """One side of the divergence: who, in which call, the frames that tell, the stack innermost first."""

    role: str
    who: str
    call: str
    lines: tuple[FrameLine, ...]
    stack: tuple[FrameLine, ...]


def sides(view: Mapping[str, Any], verdict: Mapping[str, Any], culprits: str) -> tuple[Side, ...]:
    """Return the culprit's side and the waiting side; a side of which nothing is known is left out."""
    stacks = mapping(view.get("stacks"))
    calls = {side: mapping(verdict.get(f"{side}_call")) for side in ("culprit", "waiting")}
    found = {
        side: _frames(mapping(stacks.get(side)).get("frames") or calls[side].get("frames")) for side in calls
    }
    if not stacks:
        found = _mark_differences(found)
    location = _frames([verdict["location"]]) if isinstance(verdict.get("location"), Mapping) else []
    drawn = []
    for side, who in (
        ("culprit", culprits),
        ("waiting", rank_text(verdict.get("in_call") or verdict.get("waiting_ranks"))),
    ):
        frames = found[side]
        lines = [f for f in frames if f.differs and f.user] or [f for f in frames if f.user][:2] or frames[:2]
        if side == "culprit" and location and location[0].path not in [f.path for f in lines[:FIRST_FRAMES]]:
            lines = [replace(location[0], name=f"{location[0].name}, where it went wrong"), *lines]
        title = text(mapping(stacks.get(side)).get("title"), 90)
        if not (lines or calls[side]):
            continue
        drawn.append(
            Side(
                role=side,
                who=title or (f"{rank_phrase(who)}" if who else side),
                call=call_text(calls[side]) if calls[side] else "call not known",
                lines=tuple(lines[:FIRST_FRAMES]),
                stack=tuple(frames),
            )
        )
    return tuple(drawn)


def _frames(value: object) -> list[FrameLine]:
    lines = []
    for frame in mappings(value):
        path = text(frame.get("file"), 300) or "?"
        line = text(frame.get("line"), 12)
        lines.append(
            FrameLine(
                place=cut(path.rsplit("/", 1)[-1], 60) + (f":{line}" if line else ""),
                name=text(frame.get("name") or frame.get("function"), 80),
                path=f"{path}:{line}" if line else path,
                user=bool(frame["user"]) if "user" in frame else not any(part in path for part in _LIBRARY),
                differs=bool(frame.get("differs")),
            )
        )
    return lines


def _mark_differences(found: Mapping[str, list[FrameLine]]) -> dict[str, list[FrameLine]]:
    """Mark the frames of each side that the other side lacks; none where one side has no frames."""
    if not all(found.values()):
        return dict(found)
    paths = {side: {frame.path for frame in frames} for side, frames in found.items()}
    other = {"culprit": "waiting", "waiting": "culprit"}
    return {
        side: [FrameLine(f.place, f.name, f.path, f.user, f.path not in paths[other[side]]) for f in frames]
        for side, frames in found.items()
    }


def call_text(call: Mapping[str, Any]) -> str:
    """Return `all_reduce, seq 812`."""
    op, seq = text(call.get("op"), 60) or "unnamed call", call.get("seq")
    return f"{op}, seq {text(seq, 20)}" if seq is not None else op
