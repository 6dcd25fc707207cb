"""What the text inputs and stacks say about each rank, digested for the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import field
from typing import TypeVar

from hangscope.explain.statements.group_ranks import GroupRanks
from hangscope.explain.statements.outlier_lines import OutlierLine
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd, WorkerDied
from hangscope.ingest.torch_logs.c10d import AsyncError, WatchdogTimeout
from hangscope.ingest.torch_logs.reports import Terminate
from hangscope.ingest.torch_logs.store import StoreTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    CallFingerprint,
    GlooClosed,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.knowledge.callsite import user_frame, waits_for_a_lock
from hangscope.knowledge.doing import waits_for_its_device
from hangscope.model.conclusion import WaitEnds
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.frames import Frame, Stack
from hangscope.model.incident import CallKind
from hangscope.model.regex import regex

_TIMEOUT = regex(r"(?i)tim(?:ed |e)-?out")
CTRL_C = "KeyboardInterrupt"  # what Ctrl-C raises
INTERRUPTS = frozenset({CTRL_C, "SystemExit", "SignalException"})
RESOLUTION = 1.0  # seconds: launchers and c10's stamps count whole seconds
CLOCK_SKEW = 5.0  # seconds by which the clocks of two hosts may disagree
#: What a rank prints that waited in vain for a call.
WAITED: tuple[type[Event], ...] = (GlooClosed, GlooTimeout, WatchdogTimeout)
#: What tells of errors, timeouts or ends.
_TROUBLE: tuple[type[Event], ...] = (
    GlooClosed, GlooTimeout, RankException, Terminate, Exit, WorkerDied, CallFingerprint, MonitoredBarrier,
)  # fmt: skip
AnyEvent = TypeVar("AnyEvent", bound=Event)


@dataclass(frozen=True, slots=True)
class Death:
    """One rank's end by a fault of its own. `how` is a phrase for a sentence; `weight` orders deaths without times."""

    rank: int
    how: str
    event: Event
    weight: int
    frame: Frame | None = None
    exception: str = ""


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a rank's main thread stood: in a collective (`op`, None where it is not told) or elsewhere (`inside` False)."""

    inside: bool
    op: str | None
    stack: Stack
    source: str
    kind: str

    @property
    def call(self) -> CallKind:
        """Return the collective that it stood in, as far as the stack tells."""
        return CallKind(self.op or "", stack=self.stack)


@dataclass(slots=True)
class Statements:
    """The digest. Keys are global ranks."""

    deaths: list[Death] = field(default_factory=list)
    exits: dict[int, Exit] = field(default_factory=dict)
    left_quietly: dict[int, str] = field(default_factory=dict)
    whereabouts: dict[int, Whereabouts] = field(default_factory=dict)
    external: ExternalEnd | None = None
    kinds: dict[type[Event], list[Event]] = field(default_factory=lambda: defaultdict(list))
    of_rank: dict[int, dict[type[Event], list[Event]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    outlier_lines: tuple[OutlierLine, ...] = ()
    group_ranks: GroupRanks = field(default_factory=lambda: GroupRanks((), ()))

    def all(self, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        """Return the events of these kinds, kind by kind in input order."""
        return [e for kind in kinds for e in self.kinds.get(kind, ()) if isinstance(e, kind)]

    def any_of(self, *kinds: type[Event]) -> bool:
        """Whether there is an event of these kinds."""
        return any(self.kinds.get(kind) for kind in kinds)

    def of(self, rank: int, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        """Return one rank's events of these kinds in input order."""
        by_kind = self.of_rank.get(rank, {})
        return [e for kind in kinds for e in by_kind.get(kind, ()) if isinstance(e, kind)]

    def by_rank(
        self, kind: type[AnyEvent], which: Callable[[AnyEvent], object] | None = None
    ) -> dict[int, AnyEvent]:
        """Return the first event of a kind, of those that `which` holds for, of each rank that has one, by rank."""
        ranks = sorted(self.of_rank) if self.kinds.get(kind) else ()
        found = ((rank, next(filter(which, self.of(rank, kind)), None)) for rank in ranks)
        return {rank: event for rank, event in found if event is not None}

    def ranks(self, *kinds: type[Event]) -> frozenset[int]:
        """Return the ranks that have an event of these kinds."""
        return frozenset(e.rank for e in self.all(*kinds) if e.rank is not None)

    @property
    def of_trouble(self) -> bool:
        """Return whether text tells of errors, timeouts or ends."""
        return self.any_of(*_TROUBLE)

    @property
    def symptoms(self) -> frozenset[int]:
        """Return the ranks that raised what a call raises which waited in vain."""
        return frozenset(self.by_rank(RankException, lambda e: e.symptom))

    @property
    def witnesses(self) -> frozenset[int]:
        """Return the ranks whose own text shows them waiting: they lost a peer or timed out themselves."""
        return self.ranks(*WAITED, AsyncError, StoreTimeout) | self.symptoms

    @property
    def wait_ends(self) -> WaitEnds:
        """Return how the waits of ranks ended, by what these ranks printed."""
        late = self.by_rank(RankException, lambda e: e.symptom and _TIMEOUT.search(f"{e.type} {e.message}"))
        timed_out = self.ranks(WatchdogTimeout, GlooTimeout, StoreTimeout, MonitoredBarrierWitness) | {*late}
        failed = (self.ranks(GlooClosed, AsyncError) | self.symptoms) - timed_out
        return WaitEnds(tuple(sorted(timed_out)), tuple(sorted(failed)))

    @property
    def ended(self) -> frozenset[int]:
        """Return the ranks that raised an error which is no timeout: they have ended, and wait for nobody."""
        checked = frozenset(self.by_rank(RankException, lambda e: e.by_check and e.type not in INTERRUPTS))
        own = frozenset(self.by_rank(RankException, lambda e: not e.symptom and e.type not in INTERRUPTS))
        return checked - self.ranks(*WAITED) | own - self.witnesses

    @property
    def stacks(self) -> dict[int, Whereabouts]:
        """Return where the ranks stood whose stacks were taken, and hold a frame."""
        return {r: w for r, w in self.whereabouts.items() if w.kind == "stack" and w.stack}

    @property
    def inside(self) -> frozenset[int]:
        """Return the ranks that stood in a collective."""
        return frozenset(rank for rank, where in self.whereabouts.items() if where.inside)

    @property
    def busy(self) -> frozenset[int]:
        """Return the ranks whose stack shows them at work outside of every call; those that wait for their GPUs only where none works."""
        outside = {rank: where.stack for rank, where in self.stacks.items() if not where.inside}
        found = {r: own for r, own in outside.items() if user_frame(own) is not None or waits_for_a_lock(own)}
        return frozenset(r for r, own in found.items() if not waits_for_its_device(own)) or frozenset(found)

    @property
    def first_deaths(self) -> list[Death]:
        """Return the deaths that nothing precedes: by time where all carry one, else by causal class."""
        heaviest = max((d.weight for d in self.deaths), default=0)
        deaths = [d for d in self.deaths if d.weight == heaviest]
        for clock in ([d.event.time for d in deaths], [d.event.stamp for d in deaths]):
            moments = [float(t) for t in clock if t is not None]
            if moments and len(moments) == len(deaths):
                first = min(moments)
                host = deaths[moments.index(first)].event.host
                apart = [RESOLUTION if d.event.host == host else CLOCK_SKEW for d in deaths]
                timed = zip(deaths, moments, apart, strict=True)
                return [d for d, moment, most in timed if moment <= first + most]
        return deaths
