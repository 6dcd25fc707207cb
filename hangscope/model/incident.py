"""The data of a job: call kind, group, queue, rank, incident.

Ranks are *global* (0..world_size-1) everywhere except where a name says `local` or `group_rank`
(the index of a rank in its group's member list). Times are wall-clock nanoseconds since the epoch,
as torch's recorder writes them, or None. Nothing here does I/O.
"""

from __future__ import annotations

from dataclasses import field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from hangscope.errors import Note
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event as Event
from hangscope.model.frames import Frame as Frame
from hangscope.model.frames import Stack as Stack
from hangscope.model.frames import UnplacedStack

if TYPE_CHECKING:  # numpy takes longer to import than everything else here together
    import numpy as np
    import numpy.typing as npt

    from hangscope.model.kinds import Kinds

    Column: TypeAlias = npt.NDArray[np.int64]
else:
    Column = Any

_UNNAMED = "(unnamed)"
#: In the name of a group whose identity across ranks no line or dump states: it rests on sizes and the order of creation.
ASSUMED = "(assumed)"


class State(int, Enum):
    """The known state of one rank's collective. On gloo, a retired last collective is UNKNOWN."""

    PENDING = 0
    STARTED = 1
    DONE = 2
    UNKNOWN = 3


class Absence(str, Enum):
    """Why something is not known. "It never called" is never one of these."""

    NO_DUMP = "no dump"
    EMPTY_DUMP = "empty dump"
    EMPTY_LOG = "no dump; its log shows no calls"
    PENDING_ONLY = "dump of pending calls only"
    UNREADABLE = "file unreadable"
    STALE = "stale dump"
    TOLD = "no dump; its log shows its last calls"


Sizes = tuple[tuple[int, ...], ...]


#: Ops whose completion on one member proves that every member took part in some call at that seq. A broadcast, reduce,
#: gather, scatter or send completes on some members while others are absent, and so does an all_to_all whose splits, which
#: are not recorded, leave pairs of members out.
PROVING_OPS = frozenset(
    [
        "all_reduce",
        "all_gather",
        "all_gather_into_tensor",
        "reduce_scatter",
        "reduce_scatter_tensor",
        "barrier",
    ]
)
ROOTED_OPS = frozenset(
    [
        "broadcast",
        "broadcast_object_list",
        "scatter",
        "scatter_object_list",
        "gather",
        "gather_object",
        "reduce",
    ]
)


@dataclass(frozen=True, slots=True)
class CallKind:
    """What a collective is, apart from who issued it and when.

    `op` is the user's name for it (`all_gather_into_tensor`, not `_all_gather_base`); `src` and `dst` are
    group-local ranks of a point-to-point call (-1: unknown; None: not point-to-point). `stack` is empty where
    the recorder kept no Python frames, as for gradient reductions on autograd's device thread; `told` is True where a
    line of text states the call, so that a missing stack says nothing.
    """

    op: str
    backend: str = ""
    input_sizes: Sizes = ()
    output_sizes: Sizes = ()
    input_dtypes: tuple[str, ...] = ()
    output_dtypes: tuple[str, ...] = ()
    src: int | None = None
    dst: int | None = None
    stack: Stack = ()
    root: int | None = None
    told: bool = False

    @property
    def is_p2p(self) -> bool:
        """Whether this is a send or a receive."""
        return self.src is not None

    @property
    def of_a_thread(self) -> bool:
        """Whether a thread that Python started issued the collective, and not the main thread."""
        first = self.stack[-1] if self.stack else Frame("", "", 0)
        return first.name in ("_bootstrap", "_bootstrap_inner") and first.file.endswith("threading.py")


@dataclass(frozen=True, slots=True)
class Group:
    """A process group, identified across ranks by its name and its member ranks (global, in group order).

    `ranks` holds at least the ranks with a call on it when `members_known` is False (gloo with several groups
    writes no members), and `partial` is True where text named some members and there may be more. `role` is tp, pp, dp, ep, cp, fsdp or world, where name or strides tell.
    """

    gid: int
    name: str
    desc: str
    ranks: tuple[int, ...]
    members_known: bool = True
    role: str | None = None
    partial: bool = False

    @property
    def label(self) -> str:
        """Return how the group is written for a person: `0 (default_pg)`."""
        return group_label(self.name, self.desc)


def group_label(name: str, desc: str) -> str:
    """Return how a group is written for a person: `0 (default_pg)`."""
    name = name or _UNNAMED
    return f"{name} ({desc})" if desc and desc != name else name


def on_group(label: str) -> str:
    """Return `on group 0 (default_pg)`, from the label of a group."""
    return "on an unnamed group" if label == _UNNAMED else f"on group {label}"


@dataclass(frozen=True, slots=True)
class Frontier:
    """The last call that one rank enqueued, started and completed on one group (seq; None: unknown; 0: none yet)."""

    enqueued: int | None = None
    started: int | None = None
    completed: int | None = None


@dataclass(slots=True)
class Queue:
    """One rank's calls on one group in the order of their enqueue, as parallel columns of one length.

    `seq` (int64): collective_seq_id, or for point-to-point calls p2p_seq_id; `kind` (int32): index into
    `Incident.kinds`; `state` (int8): a `State` value; `created` (int64): ns, 0 where unknown; `order` (int64): the
    rank's own running number over all its groups (record_id), which gives the interleaving of groups. `overwritten` is
    True where the ring lost older calls, `pending_only` where no completed call was kept. `frontier` comes from `pg_status` and knows more than the rows do.
    `tells_completion` is False for NCCL's call lines, which are printed when a call is made and never when it ends;
    `cut` is True where calls behind the last row may be missing, so that its silence proves nothing; `told` where single
    lines of a log state its rows, so that there is no history before them. `completed`: ns of completion, 0 where unknown; None
    unless it was asked for. `issued`: the running number among all operations of the group, also those that its recorder
    does not keep; None where it keeps all.
    """

    rank: int
    gid: int
    seq: Column
    kind: Column
    state: Column
    created: Column
    order: Column
    frontier: Frontier = Frontier()
    overwritten: bool = False
    pending_only: bool = False
    tells_completion: bool = True
    cut: bool = False
    told: bool = False
    completed: Column | None = None
    issued: Column | None = None

    def __len__(self) -> int:
        return len(self.seq)


@dataclass(slots=True)
class RankRecord:
    """Everything known of one rank. `calls_file` holds its calls: the dump, or a log that recorded them in text."""

    rank: int
    host: str | None = None
    local_rank: int | None = None
    device: int | None = None
    pid: int | None = None
    files: list[str] = field(default_factory=list)
    dump_file: str | None = None
    calls_file: str | None = None
    stack_file: str | None = None
    absence: Absence | None = None
    queues: dict[int, Queue] = field(default_factory=dict)
    p2p: dict[int, Queue] = field(default_factory=dict)
    threads: list[tuple[str, Stack]] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    log_tails: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)  # file, its last lines
    unchanged_snapshots: int = 0
    unchanged_stacks: int = 0  # earlier looks at it that show the stack of the last one

    @property
    def recorder(self) -> str:
        """Return which kind of evidence its calls are: `dump`, or `log` where lines of text recorded them."""
        return "log" if self.dump_file is None and self.calls_file is not None else "dump"

    @property
    def all_queues(self) -> list[Queue]:
        """Return its queues by group, those of collectives first."""
        return [queue for found in (self.queues, self.p2p) for _, queue in sorted(found.items())]

    @property
    def seen(self) -> bool:
        """Whether a usable dump (or a text recorder) of this rank exists."""
        return self.absence in (None, Absence.PENDING_ONLY, Absence.TOLD)


@dataclass(frozen=True, slots=True)
class Input:
    """One file of the incident and what became of it. `status` is used, set aside, ignored or failed."""

    file: str
    kind: str
    rank: int | None
    status: str
    reason: str = ""


@dataclass(slots=True)
class Incident:
    """Everything that is known of one job, after ingest and before alignment."""

    world_size: int
    ranks: dict[int, RankRecord]
    groups: list[Group]
    kinds: Kinds
    events: list[Event] = field(default_factory=list)
    inputs: list[Input] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    size_stated: bool = (
        False  # an input states how many ranks there are: something can be said of all of them
    )
    captured: float = 0.0  # when the last stack or dump of a watched run was captured, s since the epoch
    libraries: tuple[str, ...] = ()  # `NCCL 2.27.5`, `torch 2.13`, as far as inputs tell
    unplaced: tuple[UnplacedStack, ...] = ()
    momentary: bool = False  # every rank's dump was written within a second of the last call of any, or behind others since which it made calls

    def last_completed(self) -> int:
        """Return when (ns) the last call of any rank that completed was enqueued, or completed where that time is known; 0 where neither is."""
        found = 0
        for queue in (queue for record in self.ranks.values() for queue in record.all_queues):
            columns = [queue.created] if queue.completed is None else [queue.created, queue.completed]
            found = max(found, *(int(column[queue.state == State.DONE].max(initial=0)) for column in columns))
        return found
