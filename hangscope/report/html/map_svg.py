"""The rank map: every rank in its place, its state as shape and colour, rings on the culprits.

Up to 64 ranks are drawn as numbered cells, one block per host. Above that the whole job is one indexed PNG of
4x4-pixel tiles (a 3x3 pattern and a gap), hosts as columns that run left to right in bands, with the rings
drawn over it as SVG.
"""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Sequence

from hangscope.model.dataclass import dataclass
from hangscope.model.rankset import compress
from hangscope.report.schema.pictures import RankMapData, TopologyData
from hangscope.report.words import ROLES, cut, some_ranks

CELL_LIMIT = 64
#: More ranks than this are not drawn: one tile each would no longer be seen, and input is not trusted.
RANK_LIMIT = 1 << 20
RING_LIMIT = 128
LABEL_LIMIT = 6
ASPECT = 3.2
TARGET_WIDTH = 960
TILE = 4
GUTTER = 48

# 3x3 patterns, and a colour of each role that stands out (3:1) from white and from near-black paper alike,
# because one image serves both themes.
_PATTERNS = {
    "waiting": ("###", "#.#", "###"),
    "culprit": ("###", "###", "###"),
    "idle": ("...", "###", "..."),
    "unseen": ("#.#", ".#.", "#.#"),
}
_COLOURS = {
    "waiting": (47, 127, 201),
    "culprit": (222, 73, 45),
    "idle": (146, 110, 190),
    "unseen": (127, 135, 143),
}

_CELL_W, _CELL_H, _LABEL_H, _BLOCK_GAP = 46, 30, 18, 14
_PLACED_H, _PLACE_CHAR = 42, 6.4  # a cell with its place in the mesh, and a character of it
_LINE_WIDTH = 960


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank of a small map: its corner in pixels, its role and whether it carries a ring."""

    x: int
    y: int
    rank: int
    role: str
    culprit: bool
    place: str = ""


@dataclass(frozen=True, slots=True)
class Label:
    """A short text at a point in pixels."""

    x: float
    y: float
    text: str


@dataclass(frozen=True, slots=True)
class StateRow:
    """One state of the legend, which is also the map in words: how many ranks are in it, and which."""

    role: str
    label: str
    count: int
    ranks: str


@dataclass(frozen=True, slots=True)
class RankMap:
    """A drawn map, in pixels: `cells` for a small job, `image` (a data: URI) with `rings` for a large one."""

    world_size: int
    width: int
    height: int
    states: tuple[StateRow, ...]
    culprits: str
    cell_width: int = _CELL_W
    cell_height: int = _CELL_H
    cells: tuple[Cell, ...] = ()
    labels: tuple[Label, ...] = ()
    image: str = ""
    image_x: int = 0
    image_width: int = 0
    scale: int = 1
    per_host: int = 0
    hosts_per_band: int = 0
    rings: tuple[tuple[float, float], ...] = ()
    ring_labels: tuple[Label, ...] = ()


def draw_rankmap(data: RankMapData, mesh: TopologyData | None = None) -> RankMap | None:
    """Return the drawn map, with each rank's place in the mesh where that is known; None of a job too large to draw."""
    if not 0 < data.world_size <= RANK_LIMIT:
        return None
    per_host = data.per_host if 0 < data.per_host <= 64 else 8
    legend = {entry.state: entry.role if entry.role in ROLES else ROLES[-1] for entry in data.legend}
    roles: list[str] = []
    for run in data.states:
        role = legend.get(run[0], ROLES[-1]) if run else ROLES[-1]
        roles += [role] * min(run[1] if len(run) > 1 else 0, data.world_size - len(roles))
    roles += [ROLES[-1]] * (data.world_size - len(roles))
    culprits = sorted({r for r in data.culprits if 0 <= r < data.world_size})
    rows = tuple(
        StateRow(entry.role, entry.label, len(ranks), some_ranks(ranks, 120))
        for entry in data.legend
        if (ranks := [rank for rank, role in enumerate(roles) if role == entry.role])
    )
    if data.world_size <= CELL_LIMIT:
        labels = mesh.labels if mesh is not None else ()
        return _draw_cells(roles, culprits, per_host, data.hosts, rows, labels)
    return _draw_image(roles, culprits, per_host, rows)


def indexed_png(rows: Sequence[bytes], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a PNG of 8-bit palette indices (RFC 2083); index 0 is transparent."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = b"".join(b"\0" + row for row in rows)
    return b"".join(
        (
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            chunk(b"PLTE", bytes(value for colour in palette for value in colour)),
            chunk(b"tRNS", b"\0"),
            chunk(b"IDAT", zlib.compress(pixels, 9)),
            chunk(b"IEND", b""),
        )
    )


def _draw_cells(
    roles: Sequence[str],
    culprits: Sequence[int],
    per_host: int,
    hosts: Sequence[str],
    rows: tuple[StateRow, ...],
    places: Sequence[str] = (),
) -> RankMap:
    columns = min(per_host, len(roles))
    width, height = _CELL_W, _CELL_H
    if places:
        width = max(width, int(max(map(len, places)) * _PLACE_CHAR) + 12)
        height = _PLACED_H
    named = any(hosts)
    block_width = max(columns * width, 2 * _CELL_W)
    per_line = max(1, _LINE_WIDTH // (block_width + _BLOCK_GAP))
    title_height = _LABEL_H if named else 0
    block_height = title_height + height + _BLOCK_GAP
    cells, labels = [], []
    blocks = (len(roles) + per_host - 1) // per_host
    for block in range(blocks):
        left = 4 + (block % per_line) * (block_width + _BLOCK_GAP)
        top = 4 + (block // per_line) * block_height
        name = hosts[block] if block < len(hosts) else ""
        labels.append(Label(left, top + 12, cut(name, block_width // 8)))
        for index in range(block * per_host, min(len(roles), (block + 1) * per_host)):
            x = left + (index - block * per_host) * width
            place = places[index] if index < len(places) else ""
            cells.append(Cell(x, top + title_height, index, roles[index], index in culprits, place))
    return RankMap(
        world_size=len(roles),
        width=8 + min(blocks, per_line) * (block_width + _BLOCK_GAP) - _BLOCK_GAP,
        height=8 + ((blocks + per_line - 1) // per_line) * block_height - _BLOCK_GAP,
        states=rows,
        culprits=compress(culprits),
        cell_width=width,
        cell_height=height,
        cells=tuple(cells),
        labels=tuple(label for label in labels if label.text),
    )


def _draw_image(
    roles: Sequence[str], culprits: Sequence[int], per_host: int, rows: tuple[StateRow, ...]
) -> RankMap:
    hosts = (len(roles) + per_host - 1) // per_host
    ideal = (ASPECT * hosts * (per_host + 1)) ** 0.5
    bands = max(1, round(hosts / ideal))
    in_band = (hosts + bands - 1) // bands
    bands = (hosts + in_band - 1) // in_band
    # One empty tile row parts the bands.
    tile_rows = bands * (per_host + 1) - 1
    pixels = [bytearray(in_band * TILE - 1) for _ in range(tile_rows * TILE - 1)]
    index = {role: number for number, role in enumerate(ROLES, start=1)}
    for rank, role in enumerate(roles):
        column, row = _tile(rank, per_host, in_band)
        for dy, line in enumerate(_PATTERNS[role]):
            for dx, mark in enumerate(line):
                if mark == "#":
                    pixels[row * TILE + dy][column * TILE + dx] = index[role]
    palette = [(0, 0, 0), *(_COLOURS[role] for role in ROLES)]
    png = indexed_png([bytes(row) for row in pixels], palette)
    scale = max(1, min(4, TARGET_WIDTH // (in_band * TILE)))
    rings = []
    for rank in culprits[:RING_LIMIT]:
        column, row = _tile(rank, per_host, in_band)
        rings.append((GUTTER + (column * TILE + 1.5) * scale, 10 + (row * TILE + 1.5) * scale))
    width = GUTTER + len(pixels[0]) * scale + 10
    ring_labels = [
        Label(x + 12 if x < width - 80 else x - 12 - 7 * len(str(rank)), y + 4, str(rank))
        for rank, (x, y) in zip(culprits, rings, strict=False)
    ]
    band_labels = [
        Label(GUTTER - 8, 10 + (band * (per_host + 1) * TILE) * scale + 9, str(band * in_band * per_host))
        for band in range(bands)
    ]
    return RankMap(
        world_size=len(roles),
        width=width,
        height=len(pixels) * scale + 20,
        states=rows,
        culprits=compress(culprits),
        labels=tuple(band_labels),
        image="data:image/png;base64," + base64.b64encode(png).decode("ascii"),
        image_x=GUTTER,
        image_width=len(pixels[0]) * scale,
        scale=scale,
        per_host=per_host,
        hosts_per_band=in_band,
        rings=tuple(rings),
        ring_labels=tuple(ring_labels) if len(culprits) <= LABEL_LIMIT else (),
    )


def _tile(rank: int, per_host: int, hosts_per_band: int) -> tuple[int, int]:
    """Return the tile (column, row) of a rank."""
    host, local = divmod(rank, per_host)
    band, column = divmod(host, hosts_per_band)
    return column, band * (per_host + 1) + local
