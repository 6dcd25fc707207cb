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


class OrderDrawing:
    """The picture, sizes in pixels; `lines` are paths, each with whether it crosses another."""

    width = 2 * _BOX + _GAP
    box_width, box_height = _BOX, _MID

    def __init__(self, orders: Orders) -> None:
        left, right = (
            {call.key: row for row, call in enumerate(calls)} for calls in (orders.left, orders.right)
        )
        self.height = _TOP + max(len(orders.left), len(orders.right)) * _ROW
        self.boxes = [_box(call, 0, row) for row, call in enumerate(orders.left)]
        self.boxes += [_box(call, _BOX + _GAP, row) for row, call in enumerate(orders.right)]
        shared = [(left[key], right[key]) for key in left if key in right]
        self.lines = []
        for a, b in shared:
            crosses = any((a - c) * (b - d) < 0 for c, d in shared)
            y1, y2, middle = _TOP + a * _ROW + _MID // 2, _TOP + b * _ROW + _MID // 2, _BOX + _GAP // 2
            self.lines.append((f"M{_BOX} {y1}C{middle} {y1} {middle} {y2} {_BOX + _GAP} {y2}", crosses))


def _box(call: OrderedCall, x: int, row: int) -> OrderBox:
    text = fitted(call.text, _BOX - 20, 12.5, bold=True)
    site = fitted(f"{call.state}{' · ' + call.site if call.site else ''}", _BOX - 20, 11, mono=True)
    return OrderBox(x, _TOP + row * _ROW, text, site, call.state.replace(" ", "-"))
