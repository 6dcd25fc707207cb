"""What a simulated run is made of: the calls that ranks have made, where each rank is, and the faults of devices."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from .calls import Call, End, Program, Stack, Stall


class Made:
    """A call that one rank has enqueued (`Call`), a part of a batch, or a batch's closing entry (`call` is
    None).

    `created`, `started` and `completed` are seconds on the job's own clock, None where it has not happened. A
    part of a batch never gets a state of its own: the recorder leaves it "scheduled" for ever.
    """

    __slots__ = (
        "batch",
        "call",
        "completed",
        "created",
        "followers",
        "gid",
        "is_p2p",
        "op_id",
        "p2p_seq",
        "parts",
        "rank",
        "ready",
        "record_id",
        "seq",
        "stack",
        "started",
        "waits",
    )

    def __init__(self, rank: int, gid: int, call: Call | None, created: float, record_id: int) -> None:
        self.rank, self.gid, self.call, self.created, self.record_id = rank, gid, call, created, record_id
        self.seq = self.p2p_seq = self.op_id = 0
        self.is_p2p = call is None or call.src is not None
        self.stack: Stack = call.stack if call is not None else ()
        self.started: float | None = None
        self.completed: float | None = None
        self.waits = 0
        self.ready = 0.0
        self.followers: list[Made | int] = []
        self.parts = 0  # of a batch's closing entry: parts that are not matched yet
        self.batch: Made | None = None  # of a part: its closing entry


@dataclass(slots=True)
class RankState:
    """Where one rank's host is. `ended` and `stalled` hold the step that stopped it."""

    rank: int
    program: Program
    position: int = 0
    time: float = 0.0
    made: list[Made] = field(default_factory=list)
    unfinished: deque[Made] = field(default_factory=deque)
    stream: dict[object, Made] = field(default_factory=dict)
    compute: list[Made] = field(default_factory=list)
    loose: list[Made] = field(default_factory=list)
    detached: list[Made] = field(default_factory=list)
    ended: End | None = None
    stalled: Stall | None = None
    blocked_at: Stack = ()
    printed: list[tuple[float, str]] = field(default_factory=list)
    collectives: dict[int, int] = field(default_factory=dict)
    p2ps: dict[int, int] = field(default_factory=dict)
    ops: dict[int, int] = field(default_factory=dict)
    pairs: dict[tuple[int, int, int], int] = field(default_factory=dict)

    @property
    def pending(self) -> list[Made]:
        """Return the calls of all its threads that have not completed, oldest first."""
        open_calls = [*self.unfinished, *(made for made in self.detached if made.completed is None)]
        return sorted(open_calls, key=lambda made: made.created)

    def pending_at(self, time: float | None) -> list[Made]:
        """Return the calls that had been made and had not completed at a time, oldest first; None: at the end."""
        if time is None:
            return self.pending
        return [m for m in self.made if m.created <= time and (m.completed is None or m.completed > time)]

    @property
    def done(self) -> bool:
        """Whether the program ran to its end or the process ended."""
        return self.ended is not None or self.position >= len(self.program)


@dataclass(slots=True)
class Devices:
    """Faults below the program: `dead` rank -> the number of its call that never completes there, though it
    takes part in it (nothing later starts); `broken` (gid, seq) of calls whose transport fails; `slow`: ranks
    whose network card makes calls with others last `factor` times as long from the second `since` on; `late`:
    (gid, seq) -> seconds by which a call completes later still.
    """

    dead: dict[int, int] = field(default_factory=dict)
    broken: set[tuple[int, int]] = field(default_factory=set)
    slow: frozenset[int] = frozenset()
    since: float = 0.0
    factor: float = 1.0
    late: dict[tuple[int, int], float] = field(default_factory=dict)

    def delay(self, call: Call, time: float) -> float:
        """Return how many times as long as usual a call lasts that starts at a time."""
        crosses = time >= self.since and not self.slow.isdisjoint(call.group.ranks)
        return self.factor if crosses and not self.slow.issuperset(call.group.ranks) else 1.0


@dataclass(slots=True)
class Outcome:
    """What a run came to. `frozen` is False when every program ran to its end."""

    ranks: list[RankState]
    frozen: bool
    last: float  # seconds: the last thing that happened anywhere
