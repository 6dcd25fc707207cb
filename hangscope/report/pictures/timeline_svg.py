"""The timeline as a picture: one row per event, placed on an axis of milliseconds since the first stall.

A job stalls within milliseconds and is noticed after minutes, so a long axis is logarithmic around zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from hangscope.report.reading import choice, cut, mappings, text

ROW_LIMIT = 24
LINEAR_SPAN_MS = 10_000.0
LABEL_CHARS = 62
#: Thirty years; what lies further away is no time.
LONGEST_MS = 1e12

_WIDTH, _LEFT, _RIGHT, _TOP, _ROW = 960, 24, 24, 30, 24
_TICK_GAP = 64.0
_TICKS_MS = (1.0, 10.0, 100.0, 1e3, 1e4, 6e4, 6e5, 3.6e6, 3.6e7)


@dataclass(frozen=True, slots=True)
class Mark:
    """One event: where its marker stands (pixels), its shape by `kind`, and its text on one side of it."""

    x: float
    y: float
    kind: str
    text: str
    text_x: float
    leftwards: bool
    time: str
    ranks: str
    label: str


@dataclass(frozen=True, slots=True)
class Tick:
    """One grid line (x in pixels) and its name."""

    x: float
    text: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """A laid-out timeline; `logarithmic` and `offset_known` belong into its caption."""

    width: int
    height: int
    ticks: tuple[Tick, ...]
    marks: tuple[Mark, ...]
    logarithmic: bool
    offset_known: bool
    left_out: int


def duration(ms: float) -> str:
    """Return a signed time as people write it: `+3.2 ms`, `+10 min 2 s`."""
    if abs(ms) < 0.05:
        return "0"
    sign, size = ("-" if ms < 0 else "+"), abs(ms)
    if size < 999.5:
        return f"{sign}{size:.3g} ms"
    if size < 59_950:
        return f"{sign}{size / 1e3:.3g} s"
    unit, lesser, ms = ("min", "s", 1e3) if size < 3_599_500 else ("h", "min", 6e4)
    whole, rest = divmod(round(size / ms), 60)
    return f"{sign}{whole} {unit}" + (f" {rest} {lesser}" if rest else "")


def draw_timeline(timeline: Mapping[str, Any]) -> Timeline | None:
    """Return the picture of the `timeline` part of a view, or None where no event carries a time."""
    events = [
        event
        for event in mappings(timeline.get("events"))
        if isinstance(event.get("t_ms"), int | float) and abs(event["t_ms"]) < LONGEST_MS
    ]
    if not events:
        return None
    events.sort(key=lambda event: float(event["t_ms"]))
    shown = events[:ROW_LIMIT]
    low, high = min(0.0, float(shown[0]["t_ms"])), max(0.0, float(shown[-1]["t_ms"]))
    logarithmic = high - low > LINEAR_SPAN_MS

    def bend(ms: float) -> float:
        return math.copysign(math.log1p(abs(ms)), ms) if logarithmic else ms

    span = (bend(high) - bend(low)) or 1.0

    def x_of(ms: float) -> float:
        return round(_LEFT + (bend(ms) - bend(low)) / span * (_WIDTH - _LEFT - _RIGHT), 1)

    return Timeline(
        width=_WIDTH,
        height=_TOP + _ROW * len(shown) + 6,
        ticks=_ticks(low, high, x_of),
        marks=tuple(_mark(event, x_of(float(event["t_ms"])), row) for row, event in enumerate(shown)),
        logarithmic=logarithmic,
        offset_known=timeline.get("offset_known") is True,
        left_out=len(events) - len(shown),
    )


def _mark(event: Mapping[str, Any], x: float, row: int) -> Mark:
    leftwards = x > _WIDTH / 2
    ranks, label = text(event.get("ranks"), 80), text(event.get("label"), 300)
    return Mark(
        x=x,
        y=_TOP + row * _ROW + _ROW / 2,
        kind=choice(event.get("kind"), ("enqueue", "log", "dump"), "log"),
        text=cut(f"{ranks}: {label}" if ranks else label, LABEL_CHARS),
        text_x=x - 12 if leftwards else x + 12,
        leftwards=leftwards,
        time=duration(float(event["t_ms"])),
        ranks=ranks,
        label=label,
    )


def _ticks(low: float, high: float, x_of: Callable[[float], float]) -> tuple[Tick, ...]:
    """Return grid lines at round times that stand far enough apart to be read; zero always."""
    ticks = [Tick(x_of(0.0), "first stall")]
    marks = sorted(
        (sign * ms for ms in _TICKS_MS for sign in (1, -1) if low <= sign * ms <= high), key=abs, reverse=True
    )
    for ms in marks:
        x = x_of(ms)
        if all(abs(x - tick.x) >= _TICK_GAP for tick in ticks):
            ticks.append(Tick(x, duration(ms)))
    return tuple(sorted(ticks, key=lambda tick: tick.x))
