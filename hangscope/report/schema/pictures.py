"""The pictures of the page as data: the calls side by side, who waits for whom, the map of ranks, the mesh, the clock.

Nothing here depends on pixels. Ranks are global; where they are text they are written `0-2,5`.
"""

from __future__ import annotations

from hangscope.model.dataclass import dataclass


@dataclass(frozen=True, slots=True)
class DiffCell:
    """One class's call in a row of the call diff.

    `mark`: same, state (the same call, not equally far), extra, left_out, differs, swapped, not_reached, unseen or no_part.
    `state`: done, pending, started, unknown, or empty where there is no call. `op`, `sizes` and `site` are empty there too.
    """

    mark: str
    state: str = ""
    op: str = ""
    seq: int | None = None
    sizes: str = ""
    site: str = ""
    group: int | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class DiffRow:
    """One call of the aligned programs: one cell per class. `differs` is the number of the difference, from 1, or None."""

    cells: tuple[DiffCell, ...]
    differs: int | None = None

    @property
    def is_open(self) -> bool:
        """Return whether a call of this row is not over."""
        return any(cell.state not in ("", "done") for cell in self.cells)


@dataclass(frozen=True, slots=True)
class DiffClass:
    """Ranks of one behaviour. `role` is culprit, waiting, idle or unseen; `standing` says where they are now."""

    ranks: str
    count: int
    role: str
    standing: str
    first: int


@dataclass(frozen=True, slots=True)
class DiffGroup:
    """A process group as the call diff names it; `number` picks its colour, which groups of one purpose share.

    `short` names the purpose alone where a column's ranks are in several such groups, each in its own.
    """

    gid: int
    label: str
    number: int
    short: str = ""


@dataclass(frozen=True, slots=True)
class CallDiff:
    """The programs of the classes, aligned; the first class is what the others are compared with.

    `earlier` calls before the first row are alike and not listed; so many `older` ones are recorded and not compared. `left_out` are classes without a column.
    """

    classes: tuple[DiffClass, ...]
    groups: tuple[DiffGroup, ...]
    rows: tuple[DiffRow, ...]
    earlier: int
    differences: int
    left_out: tuple[DiffClass, ...] = ()
    classes_left_out: int = 0
    ranks_left_out: int = 0
    older: int = 0


@dataclass(frozen=True, slots=True)
class WaitNode:
    """A host or a call. `root`: what the headline says that all wait for in the end. `call`: its group and seq, where it is one call.

    `assumed`: no line names this call.
    """

    id: str
    kind: str
    label: str
    group: str
    ranks: str
    count: int
    root: bool = False
    cycle: bool = False
    culprit: bool = False
    call: str = ""
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class WaitEdge:
    """`source` waits for `target`; `assumed` where no record shows it."""

    source: str
    target: str
    assumed: bool = False


@dataclass(frozen=True, slots=True)
class WaitPicture:
    """The wait-for graph, condensed, and the same in words."""

    nodes: tuple[WaitNode, ...]
    edges: tuple[WaitEdge, ...]
    text: tuple[str, ...]
    left_out: int = 0


@dataclass(frozen=True, slots=True)
class StateRow:
    """One state of the rank map: its role, what it is called, and which ranks are in it."""

    role: str
    label: str
    count: int
    ranks: str


@dataclass(frozen=True, slots=True)
class FoldRow:
    """A host, or a coordinate, or several alike: how many ranks are in each state, in the order of `ROLES`.

    `near` ranks wait for the root directly, `behind` indirectly; `first_ms` and `last_ms` say when they stalled, after the first rank of the job.
    """

    name: str
    ranks: str
    count: int
    states: tuple[int, ...]
    near: int
    behind: int
    first_ms: float | None
    last_ms: float | None


@dataclass(frozen=True, slots=True)
class MapFold:
    """The rank map folded by host or by a dimension of the mesh."""

    by: str
    rows: tuple[FoldRow, ...]


@dataclass(frozen=True, slots=True)
class RankMapData:
    """One state per rank as run-length pairs (index in `ROLES`, count). `hosts` is empty where ranks do not fill host after host."""

    world_size: int
    per_host: int
    hosts: tuple[str, ...]
    states: tuple[tuple[int, ...], ...]
    legend: tuple[StateRow, ...]
    culprits: tuple[int, ...]
    folds: tuple[MapFold, ...] = ()


@dataclass(frozen=True, slots=True)
class Dimension:
    """One dimension of the job's mesh: a rank's coordinate is `rank // stride % size`, unless `stride` is None."""

    name: str
    size: int
    stride: int | None = None


@dataclass(frozen=True, slots=True)
class TopologyData:
    """The mesh as the groups show it: its dimensions, and the coordinates of each rank in their order."""

    dimensions: tuple[Dimension, ...]
    labels: tuple[str, ...]
    spread: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Moment:
    """One point of the incident. `at` is ns since the epoch as text; `local` of a clock whose time zone is not known."""

    kind: str
    at: str
    text: str
    source: str = ""
    local: bool = False


@dataclass(frozen=True, slots=True)
class StripData:
    """The incident on the wall clock. `stalled_s`: seconds from the last progress to the end or the last sign of life."""

    moments: tuple[Moment, ...]
    stalled_s: float | None
    rank_hours: float | None
    one_clock: bool
    life: str
