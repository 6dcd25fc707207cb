"""What only the HTML page shows, as typed data: pictures, the story of the cause, and the detail of each rank.

A story is made of a few kinds of parts. Ranks are global; where they are text they are written `0-2,5`. Frames are innermost first.
"""

from __future__ import annotations

from typing import ClassVar

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.pictures import CallDiff, RankMapData, StripData, TopologyData, WaitPicture


@dataclass(frozen=True, slots=True)
class PageFrame:
    """A stack frame; `differs`: the other side does not have it. `code` is the line's text where something quoted it."""

    name: str
    file: str
    line: int
    user: bool
    differs: bool = False
    code: str = ""


@dataclass(frozen=True, slots=True)
class SidePart:
    """One side of the divergence: who, in which call or stack, innermost frame first."""

    role: str
    title: str
    call: str
    rank: int | None
    frames: tuple[PageFrame, ...]


@dataclass(frozen=True, slots=True)
class Snippet:
    """Some lines of source, by their numbers, around `line`, which has a label under it."""

    role: str
    file: str
    line: int
    label: str
    lines: tuple[tuple[int, str], ...]
    origin: str


@dataclass(frozen=True, slots=True)
class Frames:
    """A stack or traceback."""

    form: ClassVar[str] = "frames"
    label: str
    frames: tuple[PageFrame, ...]


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines of text; `kind` is quote for printed ones, mono for code, note for a remark of the page."""

    form: ClassVar[str] = "lines"
    lines: tuple[str, ...]
    kind: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table: its cells as text, and a word that a style may hang on, such as a role."""

    cells: tuple[str, ...]
    mark: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table; `mono` and `numbers` are columns with code and numbers. `left_out` says in words how many rows were left out."""

    form: ClassVar[str] = "table"
    title: str
    head: tuple[str, ...]
    rows: tuple[Row, ...]
    mono: tuple[int, ...] = ()
    left_out: str = ""
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Box:
    """One of two things that belong together, such as a send and its recv; `is_there`: it was seen."""

    is_there: bool
    title: str
    text: str
    site: str = ""
    rank: int | None = None


@dataclass(frozen=True, slots=True)
class Boxes:
    """Two boxes side by side."""

    form: ClassVar[str] = "boxes"
    boxes: tuple[Box, ...]


@dataclass(frozen=True, slots=True)
class LastLine:
    """What ranks printed last."""

    ranks: str
    role: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Endings:
    """The ends of what ranks printed."""

    form: ClassVar[str] = "endings"
    endings: tuple[LastLine, ...]


@dataclass(frozen=True, slots=True)
class OrderedCall:
    """One collective of an order: equal `key`s are the same collective on both sides."""

    key: str
    text: str
    site: str
    state: str


@dataclass(frozen=True, slots=True)
class Orders:
    """The last collectives of two sides, which issued them in different orders."""

    form: ClassVar[str] = "orders"
    titles: tuple[str, ...]
    left: tuple[OrderedCall, ...]
    right: tuple[OrderedCall, ...]


Part = Frames | Lines | Table | Boxes | Endings | Orders


@dataclass(frozen=True, slots=True)
class Story:
    """What happened, for one kind of cause. `text` introduces it; `quote` is a printed line after it."""

    kind: str
    title: str
    text: str
    parts: tuple[Part, ...]
    quote: str = ""


@dataclass(frozen=True, slots=True)
class RankDetail:
    """What the side panel shows of one rank, or of a class of them. `queue` is an index into the queues, whose calls name `groups` by number."""

    ranks: str
    host: str | None
    label: str
    state: str
    standing: str
    absence: str | None
    waits: tuple[str, ...]
    queue: int | None
    stack: tuple[str, ...]
    events: tuple[str, ...]
    files: tuple[str, ...]
    log: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DetailData:
    """The side panel's data; each queue is a list of calls, oldest first: op, sizes, seq, number of the group, state and site.

    `hosts` with `per_host` ranks each, in order, where ranks fill host after host.
    """

    ranks: tuple[RankDetail, ...] = ()
    queues: tuple[tuple[tuple[str, ...], ...], ...] = ()
    hosts: tuple[str, ...] = ()
    per_host: int = 0


@dataclass(frozen=True, slots=True)
class PageData:
    """All of it; None where the evidence gives no such picture."""

    calls: CallDiff | None = None
    waitfor: WaitPicture | None = None
    rankmap: RankMapData | None = None
    topology: TopologyData | None = None
    strip: StripData | None = None
    story: Story | None = None
    sides: tuple[SidePart, ...] = ()
    snippets: tuple[Snippet, ...] = ()
    detail: DetailData = DetailData()
