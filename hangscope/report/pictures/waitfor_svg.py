"""The wait-for graph as a picture: condensed nodes in layers, waiting on the left, the root on the right.

An edge reads "waits for". Edges that close a cycle run back below the nodes. Cycles are bold, assumed edges
dashed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hangscope.report.reading import cut, is_number, mappings, text, texts

NODE_LIMIT = 30
LABEL_CHARS = 25
SUB_CHARS = 29  # of the smaller line below it

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 190, 46, 46, 20, 6


@dataclass(frozen=True, slots=True)
class Node:
    """One box: its corner in pixels, two lines of text, and what it is (host or call, root, in a cycle)."""

    x: int
    y: int
    kind: str
    label: str
    ranks: str
    root: bool
    cycle: bool


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
    node_width: int = _WIDTH
    node_height: int = _HEIGHT


def draw_waitfor(waitfor: Mapping[str, Any]) -> WaitFor | None:
    """Return the picture of the `waitfor` part of a view, or None where there is no node."""
    given: dict[str, Mapping[str, Any]] = {}
    for node in mappings(waitfor.get("nodes")):
        given.setdefault(str(node.get("id")), node)
    if not given:
        return None
    # A graph too large to read keeps what the verdict rests on: roots and cycles first.
    kept = sorted(given, key=lambda name: not (given[name].get("root") or given[name].get("cycle")))[
        :NODE_LIMIT
    ]
    names = [name for name in given if name in kept]
    edges: dict[tuple[str, str], bool] = {}
    for edge in mappings(waitfor.get("edges")):
        ends = (str(edge.get("from")), str(edge.get("to")))
        if ends[0] in names and ends[1] in names and ends[0] != ends[1]:
            edges[ends] = bool(edge.get("assumed")) and edges.get(ends, True)
    back = _back_edges(names, list(edges))
    chains, columns = _layers(names, [ends for ends in edges if ends not in back])
    tallest = max(len(column) for column in columns)
    place = {
        name: (
            _MARGIN + depth * (_WIDTH + _GAP_X),
            _MARGIN + (tallest - len(column)) * (_HEIGHT + _GAP_Y) // 2 + row * (_HEIGHT + _GAP_Y),
        )
        for depth, column in enumerate(columns)
        for row, name in enumerate(column)
    }
    floor = _MARGIN + tallest * (_HEIGHT + _GAP_Y)
    lines = texts(waitfor.get("text"), 300) or [
        f"{_short(given[a])} waits for {_short(given[b])}" for a, b in edges
    ]
    return WaitFor(
        width=2 * _MARGIN + len(columns) * (_WIDTH + _GAP_X) - _GAP_X,
        height=floor + (8 + 12 * len(back) if back else -_GAP_Y + _MARGIN),
        nodes=tuple(_node(given[name], *place[name]) for name in names),
        edges=tuple(
            Edge(
                _under(place[a], place[b], floor + 12 * back.index((a, b)))
                if (a, b) in back
                else _across([place[stop] for stop in chains[a, b]]),
                assumed,
                bool(given[a].get("cycle") and given[b].get("cycle")),
            )
            for (a, b), assumed in edges.items()
        ),
        text=tuple(lines),
        left_out=len(given) - len(names),
    )


def _node(node: Mapping[str, Any], x: int, y: int) -> Node:
    count = node.get("count")
    ranks = text(node.get("ranks"), 40)
    if ranks and is_number(count) and count > 2:
        ranks = f"{count:,} ranks: {ranks}"
    elif ranks:
        ranks = f"rank {ranks}" if count == 1 else f"ranks {ranks}"
    group = text(node.get("group"), SUB_CHARS)
    parts = (["root"] if node.get("root") else []) + [part for part in (group, ranks) if part]
    return Node(
        x=x,
        y=y,
        kind="call" if node.get("kind") == "call" else "host",
        label=text(node.get("label"), LABEL_CHARS),
        ranks=cut(" · ".join(parts), SUB_CHARS),
        root=bool(node.get("root")),
        cycle=bool(node.get("cycle")),
    )


def _short(node: Mapping[str, Any]) -> str:
    ranks = text(node.get("ranks"), 60)
    return (text(node.get("label"), 60) or text(node.get("id"), 60)) + (f" [{ranks}]" if ranks else "")


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
    """Return the stops of each edge, one per column, and the columns, each name behind its longest path.

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


def _across(stops: Sequence[tuple[int, int]]) -> str:
    """Return a line from the right side of the first place to the left side of the last."""
    middle = _HEIGHT // 2
    path = f"M{stops[0][0] + _WIDTH} {stops[0][1] + middle}"
    for (x1, y1), (x2, y2) in pairwise(stops):
        last = (x2, y2) == stops[-1]
        x1, x2, y1, y2 = x1 + _WIDTH, x2 - 3 * last, y1 + middle, y2 + middle
        path += f"C{(x1 + x2) // 2} {y1} {(x1 + x2) // 2} {y2} {x2} {y2}" + ("" if last else f"h{_WIDTH}")
    return path


def _under(start: tuple[int, int], end: tuple[int, int], floor: int) -> str:
    x1, y1, x2, y2 = start[0] + _WIDTH // 2, start[1] + _HEIGHT, end[0] + _WIDTH // 2, end[1] + _HEIGHT + 3
    if x1 == x2:
        x2 -= 24
    return f"M{x1} {y1}C{x1} {floor + 8} {x2} {floor + 8} {x2} {y2}"
