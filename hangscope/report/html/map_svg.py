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
from hangscope.report.schema.pictures import RankMapData
from hangscope.report.words import ROLES, cut

CELL_LIMIT = 64
#: More ranks than this are not drawn: one tile each would no longer be seen.
RANK_LIMIT = 1 << 20
RING_LIMIT, LABEL_LIMIT = 128, 6
ASPECT = 3.2
TARGET_WIDTH = 960
TILE = 4
GUTTER = 48

# 3x3 patterns, and a colour of each role that stands out (3:1) from white and from near-black paper alike,
# because one image serves both themes.
_TILES = {
    "waiting": (("###", "#.#", "###"), (47, 127, 201)),
    "culprit": (("###", "###", "###"), (222, 73, 45)),
    "idle": (("...", "###", "..."), (146, 110, 190)),
    "unseen": (("#.#", ".#.", "#.#"), (127, 135, 143)),
}

_CELL_W, _CELL_H, _LABEL_H, _BLOCK_GAP = 46, 30, 18, 14
_PLACED_H, _PLACE_CHAR = 42, 6.4  # a cell with its place in the mesh, and a character of it
_LINE_WIDTH = 960


@dataclass(frozen=True, slots=True)
class Cell:
    """One rank of a small map: its corner in pixels, its role, whether it is a culprit, and its place in the mesh."""

    x: int
    y: int
    rank: int
    role: str
    culprit: bool
    place: str = ""


Label = tuple[float, float, str]  # a short text at a point in pixels


class RankMap:
    """A drawn map, in pixels: `cells` for a small job, `image` (a data: URI) with `rings` for a large one.

    `places` are the ranks' places in the mesh, where they are known.
    """

    image_x = GUTTER

    def __init__(self, data: RankMapData, places: Sequence[str] = ()) -> None:
        self.data = data
        self.cells: list[Cell] = []
        self.labels: list[Label] = []
        self.image, self.scale, self.image_width, self.per_band = "", 1, 0, 0
        self.rings: list[tuple[float, float]] = []
        self.ring_labels: list[Label] = []
        roles = [ROLES[state] for state, count in data.states for _ in range(count)]
        longest = max(map(len, places), default=0)
        self.cell_width = max(_CELL_W, int(longest * _PLACE_CHAR) + 12 if places else 0)
        self.cell_height = _PLACED_H if places else _CELL_H
        is_small = data.world_size <= CELL_LIMIT
        self.width, self.height = self._draw_cells(roles, places) if is_small else self._draw_image(roles)

    def _draw_cells(self, roles: Sequence[str], places: Sequence[str]) -> tuple[int, int]:
        per_host, hosts = self.data.per_host, self.data.hosts
        block_width = max(min(per_host, len(roles)) * self.cell_width, 2 * _CELL_W) + _BLOCK_GAP
        title_height = _LABEL_H if any(hosts) else 0
        block_height = title_height + self.cell_height + _BLOCK_GAP
        per_line = max(1, _LINE_WIDTH // block_width)
        blocks = _parts(len(roles), per_host)
        for rank, role in enumerate(roles):
            block, local = divmod(rank, per_host)
            line, column = divmod(block, per_line)
            left, top = 4 + column * block_width, 4 + line * block_height
            if not local and block < len(hosts):
                self.labels.append((left, top + 12, cut(hosts[block], (block_width - _BLOCK_GAP) // 8)))
            place = places[rank] if rank < len(places) else ""
            x, y = left + local * self.cell_width, top + title_height
            self.cells.append(Cell(x, y, rank, role, rank in self.data.culprits, place))
        lines = _parts(blocks, per_line)
        return 8 + min(blocks, per_line) * block_width - _BLOCK_GAP, 8 + lines * block_height - _BLOCK_GAP

    def _draw_image(self, roles: Sequence[str]) -> tuple[int, int]:
        per_host, culprits = self.data.per_host, self.data.culprits
        hosts = _parts(len(roles), per_host)
        bands = max(1, round(hosts / (ASPECT * hosts * (per_host + 1)) ** 0.5))
        self.per_band = in_band = _parts(hosts, bands)
        bands = _parts(hosts, in_band)
        # One empty tile row parts the bands.
        pixels = [bytearray(in_band * TILE - 1) for _ in range((bands * (per_host + 1) - 1) * TILE - 1)]
        for rank, role in enumerate(roles):
            column, row = _tile(rank, per_host, in_band)
            for dy, line in enumerate(_TILES[role][0]):
                for dx, mark in enumerate(line):
                    if mark == "#":
                        pixels[row * TILE + dy][column * TILE + dx] = ROLES.index(role) + 1
        png = indexed_png([bytes(row) for row in pixels], [(0, 0, 0), *(_TILES[role][1] for role in ROLES)])
        self.image = "data:image/png;base64," + base64.b64encode(png).decode("ascii")
        self.scale = scale = max(1, min(4, TARGET_WIDTH // (in_band * TILE)))
        self.image_width = len(pixels[0]) * scale
        width = GUTTER + self.image_width + 10
        for rank in culprits[:RING_LIMIT]:
            column, row = _tile(rank, per_host, in_band)
            x, y = GUTTER + (column * TILE + 1.5) * scale, 10 + (row * TILE + 1.5) * scale
            self.rings.append((x, y))
            if len(culprits) <= LABEL_LIMIT:
                beside = x + 12 if x < width - 80 else x - 12 - 7 * len(str(rank))
                self.ring_labels.append((beside, y + 4, str(rank)))
        for band in range(bands):
            y = 10 + band * (per_host + 1) * TILE * scale + 9
            self.labels.append((GUTTER - 8, y, str(band * in_band * per_host)))
        return width, len(pixels) * scale + 20


def indexed_png(rows: Sequence[bytes], palette: Sequence[tuple[int, int, int]]) -> bytes:
    """Return a PNG of 8-bit palette indices (RFC 2083); index 0 is transparent."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(rows[0]), len(rows), 8, 3, 0, 0, 0)
    pixels = b"".join(b"\0" + row for row in rows)
    colours = bytes(value for colour in palette for value in colour)
    chunks = {
        b"IHDR": header,
        b"PLTE": colours,
        b"tRNS": b"\0",
        b"IDAT": zlib.compress(pixels, 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in chunks.items())


def _parts(number: int, size: int) -> int:
    """Return how many parts of a size hold so many."""
    return (number + size - 1) // size


def _tile(rank: int, per_host: int, per_band: int) -> tuple[int, int]:
    host, local = divmod(rank, per_host)
    band, column = divmod(host, per_band)
    return column, band * (per_host + 1) + local
