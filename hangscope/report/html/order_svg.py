"""Two orders of collectives drawn: two lists, and a line from each collective to the same one on the other side."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.report.html.measure import fitted
from hangscope.report.schema.stories import OrderedCall, Orders

_BOX, _GAP, _ROW, _TOP, _MID = 330, 200, 54, 34, 44


@dataclass(frozen=True, slots=True)
class OrderBox:
    """One call: its corner in pixels and two lines of text."""

    x: int
    y: int
    text: str
    site: str
    state: str


@dataclass(frozen=True, slots=True)
class OrderDrawing:
    """The picture, sizes in pixels; `lines` are paths, each with whether it crosses another."""

    width: int
    height: int
    boxes: tuple[OrderBox, ...]
    lines: tuple[tuple[str, bool], ...]
    box_width: int = _BOX
    box_height: int = _MID


def draw_order(orders: Orders) -> OrderDrawing:
    """Return the drawing of an order orders."""
    right_x = _BOX + _GAP
    spots = {
        side: {call.key: row for row, call in enumerate(calls)}
        for side, calls in (("left", orders.left), ("right", orders.right))
    }
    shared = [key for key in spots["left"] if key in spots["right"]]
    lines = []
    for key in shared:
        a, b = spots["left"][key], spots["right"][key]
        crosses = any(
            (a - spots["left"][other]) * (b - spots["right"][other]) < 0 for other in shared if other != key
        )
        y1, y2 = _TOP + a * _ROW + _MID // 2, _TOP + b * _ROW + _MID // 2
        lines.append(
            (f"M{_BOX} {y1}C{_BOX + _GAP // 2} {y1} {_BOX + _GAP // 2} {y2} {right_x} {y2}", crosses)
        )
    boxes = [_box(call, 0, row) for row, call in enumerate(orders.left)]
    boxes += [_box(call, right_x, row) for row, call in enumerate(orders.right)]
    return OrderDrawing(
        width=2 * _BOX + _GAP,
        height=_TOP + max(len(orders.left), len(orders.right)) * _ROW,
        boxes=tuple(boxes),
        lines=tuple(lines),
    )


def _box(call: OrderedCall, x: int, row: int) -> OrderBox:
    return OrderBox(
        x,
        _TOP + row * _ROW,
        fitted(call.text, _BOX - 20, 12.5, bold=True),
        fitted(f"{call.state}{' · ' + call.site if call.site else ''}", _BOX - 20, 11, mono=True),
        call.state.replace(" ", "-"),
    )
