"""The frontier lanes: one row per class of ranks in equal state, one column per seq around the divergence.

It is a table whose cells hold a drawn shape beside the word it stands for: it is its own text alternative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hangscope.report.reading import choice, is_number, items, mapping, mappings, text

ROW_LIMIT = 24
COLUMN_LIMIT = 9

CELL_WORDS = {
    "done": "completed",
    "pending": "pending",
    "absent": "never enqueued",
    "unseen": "not seen",
    "overwritten": "overwritten",
    "unknown": "not known",
}
_ROLES = ("waiting", "culprit", "idle", "unseen", "done")


@dataclass(frozen=True, slots=True)
class LaneCell:
    """One class at one seq: its call there and how far that came; `parts`: the op, to be broken between."""

    op: str
    state: str
    word: str
    odd: bool
    sizes: str
    site: str
    divergent: bool
    parts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Lane:
    """One class of ranks."""

    ranks: str
    count: int | None
    role: str
    label: str
    cells: tuple[LaneCell, ...]


@dataclass(frozen=True, slots=True)
class Lanes:
    """The lanes of one group.

    `divergence` is the index of the column where the classes part, or None; `near` the first column that a
    narrow screen shows; `states` are the shapes used, with their words.
    """

    group: str
    seqs: tuple[str, ...]
    divergence: int | None
    near: int
    rows: tuple[Lane, ...]
    states: tuple[tuple[str, str], ...]
    rows_left_out: int
    seqs_left_out: int


def draw_lanes(lanes: Mapping[str, Any]) -> Lanes | None:
    """Return the lanes of the `lanes` part of a view, or None where it holds no row or no seq."""
    seqs = [seq for seq in items(lanes.get("seqs")) if is_number(seq)]
    rows = mappings(lanes.get("rows"))
    if not seqs or not rows:
        return None
    divergence = lanes.get("divergence_seq") if is_number(lanes.get("divergence_seq")) else None
    shown = _around(seqs, divergence)
    at = shown.index(divergence) if divergence in shown else None
    group = mapping(lanes.get("group"))
    name, desc = text(group.get("name"), 50) or "(unnamed)", text(group.get("desc"), 50)
    drawn = tuple(_lane(row, shown, divergence) for row in rows[:ROW_LIMIT])
    used = {cell.state for row in drawn for cell in row.cells}
    return Lanes(
        group=f"{name} ({desc})" if desc and desc != name else name,
        seqs=tuple(f"{seq}" for seq in shown),
        divergence=at,
        near=(len(shown) - 1 if at is None else at) - 1,
        rows=drawn,
        states=tuple((state, word) for state, word in CELL_WORDS.items() if state in used),
        rows_left_out=max(0, len(rows) - ROW_LIMIT),
        seqs_left_out=len(seqs) - len(shown),
    )


def _around(seqs: list[int], divergence: int | None) -> list[int]:
    """Return at most COLUMN_LIMIT seqs, the divergence near their right end: what led there matters more."""
    if len(seqs) <= COLUMN_LIMIT:
        return seqs
    at = seqs.index(divergence) if divergence is not None and divergence in seqs else len(seqs) - 1
    start = max(0, min(at - COLUMN_LIMIT + 3, len(seqs) - COLUMN_LIMIT))
    return seqs[start : start + COLUMN_LIMIT]


def _lane(row: Mapping[str, Any], seqs: list[int], divergence: int | None) -> Lane:
    by_seq = {cell["seq"]: cell for cell in mappings(row.get("cells")) if is_number(cell.get("seq"))}
    count = row.get("count")
    return Lane(
        ranks=text(row.get("ranks"), 26) or "?",
        count=count if is_number(count) else None,
        role=choice(row.get("role"), _ROLES, "other"),
        label=text(row.get("label"), 60),
        cells=tuple(_cell(by_seq.get(seq, {}), seq == divergence) for seq in seqs),
    )


def _cell(cell: Mapping[str, Any], divergent: bool) -> LaneCell:
    state = choice(cell.get("state"), CELL_WORDS, "unknown")
    op = text(cell.get("op"), 30)
    return LaneCell(
        op=op,
        state=state,
        word=CELL_WORDS[state],
        odd=bool(cell.get("odd")),
        sizes=text(cell.get("sizes"), 36),
        site=text(cell.get("site"), 48),
        divergent=divergent,
        parts=tuple(op.replace("_", "_\0").split("\0")),
    )
