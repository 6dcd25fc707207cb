"""Two small drawings, and how wide their text will be.

Two orders of collectives: two lists, and a line from each collective to the same one on the other side. The timeline to scale: the
points of the incident on one line, numbered as in the list below it. Widths are an upper estimate in CSS pixels, those of wide system
fonts (DejaVu Sans, Verdana), so that text fits where a narrower one is drawn.
"""

from __future__ import annotations

from itertools import accumulate, pairwise

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.page import OrderedCall, Orders
from hangscope.report.schema.pictures import StripData

_BOX, _GAP, _ROW, _TOP, _MID = 330, 200, 54, 34, 44


class OrderDrawing:
    """The picture, sizes in pixels; `boxes` have a corner, two lines of text and a state, `lines` a path and whether it crosses another."""

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


def _box(call: OrderedCall, x: int, row: int) -> tuple[int, int, str, str, str]:
    text = fitted(call.text, _BOX - 20, 12.5, bold=True)
    site = fitted(f"{call.state}{' · ' + call.site if call.site else ''}", _BOX - 20, 11, mono=True)
    return x, _TOP + row * _ROW, text, site, call.state.replace(" ", "-")


_WIDTH, _MARGIN, _APART = 1104, 12, 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """Each point's kind, where it is, and where its number has room (pixels); the job was stalled from `stalled` pixels on."""

    width: int
    marks: tuple[tuple[str, int, int], ...]
    stalled: int


def draw_timeline(strip: StripData | None) -> Timeline | None:
    """Return the drawing, or None where there are not two times."""
    # A log's whole second may lie before the moment that comes first: nothing runs backwards.
    times = [*accumulate((int(moment.at) for moment in strip.moments), max)] if strip is not None else []
    if strip is None or len(times) < 2 or times[0] == times[-1]:
        return None
    room = _WIDTH - 2 * _MARGIN
    xs = [_MARGIN + (at - times[0]) * room // (times[-1] - times[0]) for at in times]
    places = xs[:]
    for left, right in pairwise(range(len(places))):
        places[right] = max(places[right], places[left] + _APART)
    places[-1] = min(places[-1], _WIDTH - _MARGIN)
    for left, right in reversed([*pairwise(range(len(places)))]):
        places[left] = min(places[left], places[right] - _APART)
    marks = tuple(zip((moment.kind for moment in strip.moments), xs, places, strict=True))
    since = (x for kind, x, _ in marks if kind in ("progress", "stall"))
    return Timeline(_WIDTH, marks, next(since, _WIDTH - _MARGIN))


_LONGEST = 200  # no box is wider than so many characters
_EMS = {**dict.fromkeys("MWmw@%—…", 1.0), **dict.fromkeys("iIljtf.,:;'|!()[]-/ r1", 0.43)}


def text_width(text: str, size: float, *, bold: bool = False, mono: bool = False) -> float:
    """Return at most how wide text of a font size is."""
    if mono:
        return len(text) * size * 0.615
    ems = 0.0
    for char in text:
        ems += _EMS.get(char) or (1.05 if ord(char) > 0x2E80 else 0.75 if char.isupper() else 0.64)
    return ems * size * (1.1 if bold else 1.0)


def fitted(text: str, room: float, size: float, *, bold: bool = False, mono: bool = False) -> str:
    """Return text that is no wider than `room` pixels, cut with a mark."""
    text, whole = text[:_LONGEST], len(text) <= _LONGEST
    if whole and text_width(text, size, bold=bold, mono=mono) <= room:
        return text
    while text and text_width(text + "…", size, bold=bold, mono=mono) > room:
        text = text[:-1]
    return text.rstrip(" ,;·") + "…"
