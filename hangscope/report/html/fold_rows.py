"""The folded rank map as the page lists it: shares of states as bars, and when the stall reached each row."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.pictures import FoldRow, MapFold, RankMapData
from hangscope.report.words import ROLE_WORDS, ROLES, duration

_WIDTH = 160


@dataclass(frozen=True, slots=True)
class Share:
    """One state's part of a bar, in pixels."""

    role: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class FoldLine:
    """One row: its bar, the same in words, and when its ranks stalled."""

    name: str
    ranks: str
    culprit: bool
    parts: tuple[Share, ...]
    states: str
    near: int
    behind: int
    when: str


@dataclass(frozen=True, slots=True)
class Fold:
    """One way to fold the map."""

    by: str
    rows: tuple[FoldLine, ...]


def fold_rows(data: RankMapData | None) -> tuple[Fold, ...]:
    """Return the folds of a map."""
    return tuple(Fold(fold.by, tuple(map(_line, fold.rows))) for fold in _folds(data))


def _folds(data: RankMapData | None) -> tuple[MapFold, ...]:
    return data.folds if data is not None else ()


def _line(row: FoldRow) -> FoldLine:
    parts, x = [], 0.0
    states = []
    for role, number in zip(ROLES, row.states, strict=False):
        if number:
            width = round(_WIDTH * number / max(1, row.count), 1)
            parts.append(Share(role, round(x, 1), width))
            x += width
            states.append(f"{number:,} {'waiting' if role == 'waiting' else ROLE_WORDS[role]}")
    when = ""
    if row.first_ms is not None and row.last_ms is not None:
        first, last = _after(row.first_ms), _after(row.last_ms)
        when = first if first == last else f"{first} to {last}"
    culprit = row.states[1:2] > (0,)
    return FoldLine(row.name, row.ranks, culprit, tuple(parts), ", ".join(states), row.near, row.behind, when)


def _after(ms: float) -> str:
    return "first" if ms <= 0 else f"+{duration(ms / 1e3)}"
