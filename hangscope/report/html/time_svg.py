"""The timeline to scale: the points of the incident on one line, numbered as in the list below it."""

from __future__ import annotations

from itertools import accumulate, pairwise

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.pictures import StripData

_WIDTH, _MARGIN, _APART = 1104, 12, 20


@dataclass(frozen=True, slots=True)
class Mark:
    """One point: where it is, and where its number has room (pixels)."""

    kind: str
    number: int
    x: int
    label_x: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """The points in order; the job was stalled from `stalled` pixels on."""

    width: int
    marks: tuple[Mark, ...]
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
    marks = tuple(Mark(m.kind, n, xs[n - 1], places[n - 1]) for n, m in enumerate(strip.moments, 1))
    since = (mark.x for mark in marks if mark.kind in ("progress", "stall"))
    return Timeline(_WIDTH, marks, next(since, _WIDTH - _MARGIN))
