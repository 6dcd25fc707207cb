"""What only the HTML page shows, as typed data: pictures, the story of the cause, and the detail of each rank."""

from __future__ import annotations

from hangscope.model.dataclass import dataclass
from hangscope.report.schema.pictures import CallDiff, RankMapData, StripData, TopologyData, WaitPicture
from hangscope.report.schema.stories import SidePart, Snippet, Story


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
