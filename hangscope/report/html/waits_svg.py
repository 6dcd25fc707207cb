"""The wait-for graph as a picture: nodes in layers, waiting on the left, the root on the right.

An edge reads "waits for". Edges that close a cycle run back below the nodes. Cycles are bold, assumed edges dashed. A
column is as wide as its widest label, up to a limit at which labels are cut; the whole label is the node's tooltip.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import counted
from hangscope.report.html.measure import fitted, text_width
from hangscope.report.schema.pictures import WaitNode, WaitPicture
from hangscope.report.words import cut

_NARROW, _WIDE, _PADDING = 130, 280, 20
_HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 46, 46, 20, 6
_NAME, _SUB = 12.5, 11.0  # font sizes
_SENTENCES = 40
_FOLDED = 3  # nodes at least, else nothing is folded
_RANKS = 400  # characters of a node's ranks that the page's script is given


@dataclass(frozen=True, slots=True)
class Node:
    """One box: its corner and width in pixels, two lines of text that fit, and its tooltip."""

    x: int
    y: int
    width: int
    node: WaitNode
    label: str
    sub: str
    title: str
    ranks: str


@dataclass(frozen=True, slots=True)
class Edge:
    """One arrow as an SVG path."""

    path: str
    assumed: bool
    cycle: bool


@dataclass(frozen=True, slots=True)
class WaitFor:
    """A laid-out graph (sizes in pixels), the same as text, and how many nodes were left out."""

    width: int
    height: int
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    text: tuple[str, ...]
    left_out: int
    node_height: int = _HEIGHT


def draw_waitfor(picture: WaitPicture) -> WaitFor | None:
    """Return the drawing of a graph, or None where there is no node."""
    given = {node.id: node for node in picture.nodes}
    if not given:
        return None
    names = list(given)
    edges = {
        (e.source, e.target): e.assumed for e in picture.edges if e.source in given and e.target in given
    }
    back = _back_edges(names, list(edges))
    chains, columns = _layers(names, [ends for ends in edges if ends not in back])
    tallest = max(len(column) for column in columns)
    widths = [max((_width(given[n]) for n in column if n in given), default=_NARROW) for column in columns]
    lefts = [_MARGIN + sum(widths[:depth]) + depth * _GAP_X for depth in range(len(columns))]
    place = {
        name: (
            lefts[depth],
            _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2 + row * (_HEIGHT + _GAP_Y),
            widths[depth],
        )
        for depth, column in enumerate(columns)
        for row, name in enumerate(column)
    }
    floor = _MARGIN + tallest * (_HEIGHT + _GAP_Y)
    return WaitFor(
        width=lefts[-1] + widths[-1] + _MARGIN,
        height=floor + (8 + 12 * len(back) if back else -_GAP_Y + _MARGIN),
        nodes=tuple(_node(given[name], *place[name]) for name in names),
        edges=tuple(
            Edge(
                _under(place[a], place[b], floor + 12 * back.index((a, b)))
                if (a, b) in back
                else _across([place[stop] for stop in chains[a, b]]),
                assumed,
                given[a].cycle and given[b].cycle,
            )
            for (a, b), assumed in edges.items()
        ),
        text=tuple(cut(line, 300) for line in picture.text[:_SENTENCES]),
        left_out=picture.left_out,
    )


def way_to_root(picture: WaitPicture) -> WaitPicture | None:
    """Return the graph without what is not on the way from the largest class of blocked ranks to the root; None where that is most of it."""
    step: dict[str, str] = {}
    work = [node.id for node in picture.nodes if node.root]
    kept = {node.id for node in picture.nodes if node.root or node.culprit or node.cycle}
    for name in work:  # grows as it is walked: breadth first
        for source in (edge.source for edge in picture.edges if edge.target == name):
            if source not in step and source not in kept:
                step[source] = name
                work.append(source)
    blocked = [node for node in picture.nodes if node.kind == "host" and node.id in step]
    at: str | None = max(blocked, key=lambda node: node.count).id if blocked else None
    while at is not None:
        kept.add(at)
        at = step.get(at)
    if not blocked or len(picture.nodes) - len(kept) < _FOLDED:
        return None
    nodes = tuple(node for node in picture.nodes if node.id in kept)
    edges = tuple(edge for edge in picture.edges if edge.source in kept and edge.target in kept)
    return WaitPicture(nodes, edges, picture.text, picture.left_out)


def _sub(node: WaitNode) -> str:
    """Return the second line of a node."""
    parts = ["root"] if node.root else []
    parts += [node.group] if node.group else []
    if node.kind == "call":
        parts.append(counted(node.count, "rank") if node.count else "nobody")
    elif node.count > 2:
        parts.append(f"{node.count:,} ranks")
    return " · ".join(parts)


def _width(node: WaitNode) -> int:
    wanted = max(
        text_width(node.label[:_RANKS], _NAME, bold=True), text_width(_sub(node)[:_RANKS], _SUB, mono=True)
    )
    return int(min(_WIDE, max(_NARROW, wanted + _PADDING + 1)))


def _node(node: WaitNode, x: int, y: int, width: int) -> Node:
    room, sub = width - _PADDING, _sub(node)
    ranks = f", ranks {node.ranks}" if node.kind == "call" and node.ranks else ""
    return Node(
        x,
        y,
        width,
        node,
        fitted(node.label, room, _NAME, bold=True),
        fitted(sub, room, _SUB, mono=True),
        cut(f"{node.label[:200]}, {sub}{ranks}" if sub else node.label, 300),
        node.ranks if len(node.ranks) <= _RANKS else node.ranks[:_RANKS].rsplit(",", 1)[0],
    )


def _back_edges(names: Sequence[str], edges: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the edges that close a cycle when walked depth-first; without them the graph has layers."""
    follow: dict[str, list[str]] = {name: [] for name in names}
    entered = dict.fromkeys(names, 0)
    for a, b in edges:
        follow[a].append(b)
        entered[b] += 1
    back: list[tuple[str, str]] = []
    colour = dict.fromkeys(names, 0)

    def visit(name: str) -> None:
        colour[name] = 1
        for to in follow[name]:
            if colour[to] == 1:
                back.append((name, to))
            elif colour[to] == 0:
                visit(to)
        colour[name] = 2

    for name in sorted(names, key=lambda name: entered[name]):
        if colour[name] == 0:
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
    columns: list[list[str]] = [[] for _ in range(max(depth.values()) + 1)]
    row: dict[str, float] = {}
    for level, column in enumerate(columns):
        members = [name for name in depth if depth[name] == level]
        origins = {name: [row[a] for a, b in steps if b == name] for name in members}
        members.sort(key=lambda name: sum(origins[name]) / len(origins[name]) if origins[name] else 0.0)
        column.extend(members)
        row.update({name: index - (len(members) - 1) / 2 for index, name in enumerate(members)})
    return chains, columns


def _across(stops: Sequence[tuple[int, int, int]]) -> str:
    """Return a line from the right side of the first place to the left side of the last."""
    middle = _HEIGHT // 2
    path = f"M{stops[0][0] + stops[0][2]} {stops[0][1] + middle}"
    for (x1, y1, w1), (x2, y2, w2) in pairwise(stops):
        last = (x2, y2, w2) == stops[-1]
        x1, x2, y1, y2 = x1 + w1, x2 - 3 * last, y1 + middle, y2 + middle
        path += f"C{(x1 + x2) // 2} {y1} {(x1 + x2) // 2} {y2} {x2} {y2}" + ("" if last else f"h{w2}")
    return path


def _under(start: tuple[int, int, int], end: tuple[int, int, int], floor: int) -> str:
    x1, y1, x2, y2 = start[0] + start[2] // 2, start[1] + _HEIGHT, end[0] + end[2] // 2, end[1] + _HEIGHT + 3
    if x1 == x2:
        x2 -= 24
    return f"M{x1} {y1}C{x1} {floor + 8} {x2} {floor + 8} {x2} {y2}"
