"""The drawings of the page but the rank map, and how wide their text will be.

Two orders of collectives: two lists, and a line from each collective to the same one on the other side. The timeline to scale: the
points of the incident on one line, numbered as in the list below it. The wait-for graph: nodes in layers, waiting on the left, the
root on the right; an edge reads "waits for"; edges that close a cycle run back below the nodes; a column is as wide as its widest
label, up to a limit at which labels are cut. Widths are an upper estimate in CSS pixels, those of wide system fonts (DejaVu Sans,
Verdana), so that text fits where a narrower one is drawn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import counted
from hangscope.report.pictures.wait_edges import steps_to
from hangscope.report.schema.page import Orders
from hangscope.report.schema.pictures import StripData, WaitNode, WaitPicture
from hangscope.report.words import cut, grouped

_BOX, _GAP, _ROW, _TOP, _MID = 330, 200, 54, 34, 44


class OrderDrawing:
    """The picture, sizes in pixels; `boxes` have a corner, two lines of text and a state, `lines` a path and whether it crosses another."""

    width = 2 * _BOX + _GAP
    box_width, box_height = _BOX, _MID

    def __init__(self, orders: Orders) -> None:
        self.boxes, rows = [], []
        for x, calls in ((0, orders.left), (_BOX + _GAP, orders.right)):
            rows.append({call.key: row for row, call in enumerate(calls)})
            for row, call in enumerate(calls):
                text = fitted(call.text, _BOX - 20, 12.5, bold=True)
                site = " · ".join(filter(None, (call.state, call.site)))
                site = fitted(site, _BOX - 20, 11, mono=True)
                self.boxes.append((x, _TOP + row * _ROW, text, site, call.state.replace(" ", "-")))
        self.height = _TOP + max(len(orders.left), len(orders.right)) * _ROW
        left, right = rows
        shared = [(left[key], right[key]) for key in left if key in right]
        self.lines = []
        for a, b in shared:
            crosses = any((a - c) * (b - d) < 0 for c, d in shared)
            y1, y2, middle = _TOP + a * _ROW + _MID // 2, _TOP + b * _ROW + _MID // 2, _BOX + _GAP // 2
            self.lines.append((f"M{_BOX} {y1}C{middle} {y1} {middle} {y2} {_BOX + _GAP} {y2}", crosses))


_WIDTH, _SIDE, _APART = 1104, 12, 20


@dataclass(frozen=True, slots=True)
class Timeline:
    """Each point's kind, where it is, and where its number has room (pixels); the job was stalled from `stalled` pixels on."""

    width: int
    marks: tuple[tuple[str, int, int], ...]
    stalled: int


def draw_timeline(strip: StripData) -> Timeline | None:
    """Return the drawing, or None where there are not two times."""
    # A log's whole second may lie before the moment that comes first: nothing runs backwards.
    times = [*accumulate((int(moment.at) for moment in strip.moments), max)]
    if not times or times[0] == times[-1]:
        return None
    room = _WIDTH - 2 * _SIDE
    xs = [_SIDE + (at - times[0]) * room // (times[-1] - times[0]) for at in times]
    places = xs[:]
    for left, right in pairwise(range(len(places))):
        places[right] = max(places[right], places[left] + _APART)
    places[-1] = min(places[-1], _WIDTH - _SIDE)
    for left, right in reversed([*pairwise(range(len(places)))]):
        places[left] = min(places[left], places[right] - _APART)
    marks = tuple(zip((moment.kind for moment in strip.moments), xs, places, strict=True))
    since = (x for kind, x, _ in marks if kind in ("progress", "stall"))
    return Timeline(_WIDTH, marks, next(since, _WIDTH - _SIDE))


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


_NARROW, _WIDE, _PADDING = 130, 280, 20
_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 46, 46, 20, 6
_NAME, _SUB = 12.5, 11.0  # font sizes
_SENTENCES = 40
_FOLDED = 3  # nodes at least, else nothing is folded
_RANKS = 400  # characters of a node's ranks that the page's script is given


Spot = tuple[int, int, int]  # the corner of a box and its width


class Node:
    """One box: its corner and width in pixels, two lines of text that fit, its tooltip, and the ranks that the script is given."""

    def __init__(self, node: WaitNode, x: int, y: int, width: int) -> None:
        self.node, self.x, self.y, self.width = node, x, y, width
        sub = _sub(node)
        self.label = fitted(node.label, width - _PADDING, _NAME, bold=True)
        self.sub = fitted(sub, width - _PADDING, _SUB, mono=True)
        ranks = f", ranks {node.ranks}" if node.kind == "call" and node.ranks else ""
        self.title = cut(f"{node.label[:200]}, {sub}{ranks}" if sub else node.label, 300)
        self.ranks = node.ranks if len(node.ranks) <= _RANKS else node.ranks[:_RANKS].rsplit(",", 1)[0]


class WaitFor:
    """A graph laid out, sizes in pixels; an edge is an SVG path, whether it is assumed, and whether it is of a cycle."""

    node_height = _HEIGHT

    def __init__(self, picture: WaitPicture) -> None:
        given = {node.id: node for node in picture.nodes}
        edges = {(edge.source, edge.target): edge.assumed for edge in picture.edges}
        back = _back_edges(list(given), list(edges))
        chains, columns = _layers(list(given), [ends for ends in edges if ends not in back])
        widths = [max((_width(given[n]) for n in col if n in given), default=_NARROW) for col in columns]
        tallest = max(map(len, columns))
        place: dict[str, Spot] = {}
        left = _MARGIN
        for column, width in zip(columns, widths, strict=True):
            top = _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2
            for row, name in enumerate(column):
                place[name] = (left, top + row * (_HEIGHT + _GAP_Y), width)
            left += width + _GAP_X
        floor = _MARGIN + tallest * (_HEIGHT + _GAP_Y)
        self.width = left - _GAP_X + _MARGIN
        self.height = floor + (8 + 12 * len(back) if back else -_GAP_Y + _MARGIN)
        self.nodes = [Node(node, *place[name]) for name, node in given.items()]
        self.edges = []
        for (a, b), assumed in edges.items():
            if (a, b) in back:
                path = _under(place[a], place[b], floor + 12 * back.index((a, b)))
            else:
                path = _across([place[stop] for stop in chains[a, b]])
            cycle = given[a].cycle and given[b].cycle
            self.edges.append({"path": path, "assumed": assumed, "cycle": cycle})
        self.text = [cut(line, 300) for line in picture.text[:_SENTENCES]]
        self.left_out = picture.left_out


def way_to_root(picture: WaitPicture) -> WaitPicture | None:
    """Return the graph without what is not on the way from the largest class of blocked ranks to the root; None where that is most of it."""
    kept = {node.id for node in picture.nodes if node.root or node.culprit or node.cycle}
    roots = [node.id for node in picture.nodes if node.root]
    step = steps_to(roots, [(e.source, e.target) for e in picture.edges if e.source not in kept])
    calls = {node.id for node in picture.nodes if node.kind == "call"}
    awaited = {edge.target for edge in picture.edges}
    hosts = [node for node in picture.nodes if node.kind == "host" and node.id in step]
    blocked = [node for node in hosts if step[node.id] in calls or node.id not in awaited]
    at: str | None = max(blocked, key=lambda node: node.count).id if blocked else None
    while at is not None:
        kept.add(at)
        at = step.get(at)
    if not blocked or len(picture.nodes) - len(kept) < _FOLDED:
        return None
    nodes = tuple(node for node in picture.nodes if node.id in kept)
    edges = tuple(edge for edge in picture.edges if edge.source in kept and edge.target in kept)
    return replace(picture, nodes=nodes, edges=edges)


def _sub(node: WaitNode) -> str:
    inside = f"{counted(node.count, 'rank')} in it" if node.count else ""
    several = f"{node.count:,} ranks" if node.count > 2 else ""
    parts = ("root" if node.root else "", node.group, inside if node.kind == "call" else several)
    return " · ".join(filter(None, parts))


def _width(node: WaitNode) -> int:
    label, sub = node.label[:_RANKS], _sub(node)[:_RANKS]
    wanted = max(text_width(label, _NAME, bold=True), text_width(sub, _SUB, mono=True))
    return int(min(_WIDE, max(_NARROW, wanted + _PADDING + 1)))


def _back_edges(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges that close a cycle when walked depth-first; without them the graph has layers."""
    follow = grouped(edges)
    entered = Counter(target for _, target in edges)
    back: list[tuple[str, str]] = []
    open_names: set[str] = set()
    done: set[str] = set()

    def visit(name: str) -> None:
        open_names.add(name)
        for to in follow.get(name, ()):
            if to in open_names:
                back.append((name, to))
            elif to not in done:
                visit(to)
        open_names.remove(name)
        done.add(name)

    for name in sorted(names, key=lambda name: entered[name]):
        if name not in done:
            visit(name)
    return back


def _layers(
    names: Sequence[str], edges: Sequence[tuple[str, str]]
) -> tuple[dict[tuple[str, str], list[str]], list[list[str]]]:
    """Return the stops of each edge, one per column, and the columns, each name in the column of its longest path.

    An edge that skips columns gets a stop in each, which keeps a row free: the line runs past the nodes.
    """
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for a, b in edges:
            depth[b] = max(depth[b], depth[a] + 1)
    chains: dict[tuple[str, str], list[str]] = {}
    steps: list[tuple[str, str]] = []
    for a, b in edges:
        between = [f"{a}\0{b}\0{level}" for level in range(depth[a] + 1, depth[b])]
        depth.update({stop: level for level, stop in enumerate(between, start=depth[a] + 1)})
        chains[a, b] = [a, *between, b]
        steps += pairwise(chains[a, b])
    columns: list[list[str]] = []
    row: dict[str, float] = {}
    for level in range(max(depth.values()) + 1):
        members = [name for name in depth if depth[name] == level]
        origins = {name: [row[a] for a, b in steps if b == name] for name in members}
        members.sort(key=lambda name: sum(origins[name]) / max(1, len(origins[name])))
        columns.append(members)
        row.update({name: index - (len(members) - 1) / 2 for index, name in enumerate(members)})
    return chains, columns


def _across(stops: Sequence[Spot]) -> str:
    """Return a line from the right side of the first place to the left side of the last."""
    middle = _HEIGHT // 2
    path = f"M{stops[0][0] + stops[0][2]} {stops[0][1] + middle}"
    for (x1, y1, w1), (x2, y2, w2) in pairwise(stops):
        last = (x2, y2, w2) == stops[-1]
        x1, x2, y1, y2 = x1 + w1, x2 - 3 * last, y1 + middle, y2 + middle
        path += f"C{(x1 + x2) // 2} {y1} {(x1 + x2) // 2} {y2} {x2} {y2}" + ("" if last else f"h{w2}")
    return path


def _under(start: Spot, end: Spot, floor: int) -> str:
    x1, y1, x2, y2 = start[0] + start[2] // 2, start[1] + _HEIGHT, end[0] + end[2] // 2, end[1] + _HEIGHT + 3
    if x1 == x2:
        x2 -= 24
    return f"M{x1} {y1}C{x1} {floor + 8} {x2} {floor + 8} {x2} {y2}"
