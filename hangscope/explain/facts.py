"""What the text inputs and stacks say about each rank, digested for the rules.

Separates deaths of a rank's own from consequences: a survivor that reports "connection closed by peer", a process that
the launcher ended with SIGTERM and a watchdog's abort are victims, whatever their exit code says.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TypeVar

from hangscope.align.group_ranks import GroupRanks
from hangscope.events import Event
from hangscope.frames import Frame, Stack
from hangscope.incident import CallKind, Incident
from hangscope.ingest.job_logs.faults import DiskFull, LoaderWorkerDeath, OomCuda, OomHost
from hangscope.ingest.job_logs.launcher import Exit, ExitOk, ExternalEnd
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.torch_logs.abort import Terminate
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.desync import FailedStack
from hangscope.ingest.torch_logs.store import DdpParams, DdpShape, DdpUnfinished, DdpUnused, StoreTimeout
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import GlooClosed, GlooSizeMismatch, GlooTimeout
from hangscope.knowledge.callsite import user_frame
from hangscope.knowledge.library import before_signal, own_knowledge

_COLLECTIVE_FILES = ("distributed_c10d.py", "_functional_collectives.py")
_NOT_OPS = frozenset({"wrapper", "wait", "_wait", "<module>", "unwrap", "trigger_wait", "wait_tensor"})
_ABORTS = frozenset({-6, 134})
_CLEANUPS = frozenset({-15, 143})
RESOLUTION = 1.0  # seconds: launchers and c10's stamps count whole seconds
_GRACE = (
    25.0  # seconds: a torchrun agent waits 30 between SIGTERM and SIGKILL, and its table counts whole seconds
)
CLOCK_SKEW = 5.0  # seconds by which the clocks of two hosts may disagree
AnyEvent = TypeVar("AnyEvent", bound=Event)
_CTRL_C = "KeyboardInterrupt"
_INTERRUPTS = frozenset({_CTRL_C, "SystemExit", "SignalException"})


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

    rank: int
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
class Facts:
    """The digest. Keys are global ranks."""

    deaths: list[Death] = field(default_factory=list)
    exits: dict[int, Exit] = field(default_factory=dict)
    first_of_the_sweep: Exit | None = None
    left_quietly: dict[int, str] = field(default_factory=dict)
    whereabouts: dict[int, Whereabouts] = field(default_factory=dict)
    external: ExternalEnd | None = None
    kinds: dict[type[Event], list[Event]] = field(default_factory=lambda: defaultdict(list))
    of_rank: dict[int, dict[type[Event], list[Event]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    group_ranks: GroupRanks = field(default_factory=lambda: GroupRanks((), ()))

    def all(self, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        """Return the events of these kinds, kind by kind in input order."""
        return [e for kind in kinds for e in self.kinds.get(kind, ()) if isinstance(e, kind)]

    def of(self, rank: int, *kinds: type[AnyEvent]) -> list[AnyEvent]:
        """Return one rank's events of these kinds in input order."""
        by_kind = self.of_rank.get(rank, {})
        return [e for kind in kinds for e in by_kind.get(kind, ()) if isinstance(e, kind)]

    def with_rank(self, event: Event) -> Event:
        """Return an event of c10d with its printer's global rank, where the line prints only a group-local one."""
        if event.rank is not None or event.group_rank is None or not event.prints_group_rank:
            return event
        ranks, assumed = self.group_ranks.resolve(event, (event.group_rank,))
        return replace(event, rank=ranks[0], rank_assumed=assumed) if ranks else event

    @property
    def witnesses(self) -> frozenset[int]:
        """Return the ranks whose own text shows them waiting: they lost a peer or timed out themselves."""
        told = self.all(GlooClosed, GlooTimeout, WatchdogTimeout, AsyncError, StoreTimeout)
        symptoms = [e for e in self.all(RankException) if e.symptom]
        return frozenset(e.rank for e in (*told, *symptoms) if e.rank is not None)

    @property
    def busy(self) -> frozenset[int]:
        """Return the ranks whose stack shows them at work outside of every call, in a line of the user's."""
        return frozenset(
            rank
            for rank, where in self.whereabouts.items()
            if where.kind == "stack" and not where.inside and user_frame(where.stack) is not None
        )

    @property
    def first_deaths(self) -> list[Death]:
        """Return the deaths that nothing precedes: by time where all carry one, else by causal class."""
        if len(self.deaths) < 2:
            return list(self.deaths)
        heaviest = max(d.weight for d in self.deaths)
        rivals = _earliest([d for d in self.deaths if d.weight == heaviest])
        if len(rivals) > 1:
            marked = [d for d in rivals if (exit := self.exits.get(d.rank)) is not None and exit.first]
            rivals = marked or rivals
        return rivals


def _earliest(deaths: list[Death]) -> list[Death]:
    """Return the deaths that no other one certainly precedes, by printed times of one kind; all where not all carry one."""
    for clock in ([d.event.time for d in deaths], [d.event.stamp for d in deaths]):
        moments = [float(t) for t in clock if isinstance(t, (int, float))]
        if len(moments) < len(deaths):
            continue
        first = moments.index(min(moments))
        host = deaths[first].event.host
        return [
            d
            for d, moment in zip(deaths, moments, strict=True)
            if moment <= moments[first] + (RESOLUTION if d.event.host == host else CLOCK_SKEW)
        ]
    return deaths


def digest(incident: Incident) -> Facts:
    """Return the facts of an incident."""
    facts = Facts(group_ranks=GroupRanks(incident.groups, incident.events))
    for event in map(facts.with_rank, incident.events):
        facts.kinds[type(event)].append(event)
        if event.rank is not None:
            facts.of_rank[event.rank][type(event)].append(event)
    for event in facts.all(Exit):
        if event.rank is not None:
            facts.exits.setdefault(event.rank, event)
    facts.external = _external(facts)
    facts.first_of_the_sweep = _first_of_the_sweep(facts.exits.values())
    facts.deaths = [d for rank in sorted(set(facts.of_rank)) if (d := _death(rank, facts)) is not None]
    _quiet_leavers(incident, facts)
    for rank in sorted(incident.ranks):
        where = _whereabouts(incident, rank, facts)
        if where is not None:
            facts.whereabouts[rank] = where
    return facts


def _external(facts: Facts) -> ExternalEnd | None:
    events = facts.all(ExternalEnd)
    if events:
        return events[0]
    pressed = [e for e in facts.all(RankException) if e.type == _CTRL_C]
    if not pressed or any(not e.symptom and e.type not in _INTERRUPTS for e in facts.all(RankException)):
        return None
    first = pressed[0]
    return ExternalEnd(
        first.file, first.line, first.text, host=first.host, time=first.time, stamp=first.stamp,
        reason="cancelled", signal="SIGINT",
    )  # fmt: skip


def _death(rank: int, facts: Facts) -> Death | None:
    """Return a rank's own death, or None where all it shows is a consequence."""
    exit_event = facts.exits.get(rank)
    own = [
        e
        for e in facts.of(rank, RankException)
        # a traceback that breaks off need not have ended anything
        if not e.symptom and not e.truncated and e.type not in _INTERRUPTS and not _went_on(rank, e, facts)
    ]
    faults: tuple[tuple[type[Event], str], ...] = (
        (OomCuda, "ran out of GPU memory"),
        (OomHost, "was killed by the host's out-of-memory killer"),
        (LoaderWorkerDeath, "lost a data loader worker"),
    )
    for kind, how in faults:
        found = [e for e in facts.of(rank, kind) if not _went_on(rank, e, facts)]
        if found:
            return Death(
                rank,
                how,
                found[0],
                4,
                user_frame(own[0].frames) if own else None,
                own[0].type if own else "",
            )
    if own and not _contradicted(rank, facts):
        return Death(
            rank,
            f"raised {own[0].type or 'an exception'}",
            own[0],
            3,
            user_frame(own[0].frames),
            own[0].type,
        )
    if exit_event is not None and exit_event is not facts.first_of_the_sweep and _swept(exit_event, facts):
        return None
    if exit_event is not None and exit_event is facts.first_of_the_sweep and exit_event.code > 0:
        return Death(rank, f"ended with exit code {exit_event.code}", exit_event, 3)
    if exit_event is not None:
        code = exit_event.code
        if code < 0 or code > 128:
            number = -code if code < 0 else code - 128
            if code in _CLEANUPS or (code in _ABORTS and _unheard_abort(rank, facts)):
                return None
            if code in _ABORTS and (
                facts.of(
                    rank,
                    GlooSizeMismatch,
                    WatchdogTimeout,
                    GlooClosed,
                    GlooTimeout,
                    Terminate,
                    RankException,
                    HeartbeatTimeout,
                    DumpSignal,
                    DumpObserved,
                    WatchdogStatus,
                )
            ):
                return None
            return Death(
                rank,
                f"was killed by signal {number} ({exit_event.signal or _SIGNALS.get(number, '?')})",
                exit_event,
                3,
            )
    full = [e for e in facts.of(rank, DiskFull) if not _went_on(rank, e, facts)]
    return Death(rank, "ran out of disk space", full[0], 2) if full else None


def _first_of_the_sweep(exits: Iterable[Exit]) -> Exit | None:
    """Return the exit that an agent answered by ending all others: half a minute later it killed those that did not go."""
    timed = sorted((e for e in exits if e.time is not None and e.via == "table"), key=lambda e: e.time or 0.0)
    ended = [e for e in timed if e.code not in _CLEANUPS and e.code != 0]
    if len(ended) < 2:
        return None
    later = [e for e in ended[1:] if e.code == -9 and (e.time or 0.0) - (ended[0].time or 0.0) >= _GRACE]
    return ended[0] if len(later) == len(ended) - 1 else None


def _swept(event: Exit, facts: Facts) -> bool:
    """Return whether a process was killed because it outlived the agent's grace after another one's end."""
    return facts.first_of_the_sweep is not None and event.code == -9 and event.via == "table"


_SIGNALS = {4: "SIGILL", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE", 9: "SIGKILL", 11: "SIGSEGV", 15: "SIGTERM"}


def _unheard_abort(rank: int, facts: Facts) -> bool:
    """Return whether a rank of which only the launcher tells was aborted in a job whose watchdogs abort the waiting."""
    heard = any(not e.by_launcher for events in facts.of_rank[rank].values() for e in events)
    return not heard and bool(facts.all(WatchdogTimeout))


def _went_on(rank: int, event: Event, facts: Facts) -> bool:
    """Return whether a rank went on with its steps after an error, so that it caught it, and lived."""
    return any(
        e.file == event.file
        and e.line > event.line
        and e.attempt == event.attempt
        and isinstance(e.step, int)
        and not e.leaving
        for e in facts.of(rank, Progress)
    )


def _contradicted(rank: int, facts: Facts) -> bool:
    """Return whether a rank's exception is DDP's own complaint about how ranks differ, which says who differs, not who died."""
    return bool(facts.of(rank, DdpParams, DdpShape, DdpUnused, DdpUnfinished))


def _quiet_leavers(incident: Incident, facts: Facts) -> None:
    """Note the ranks that ended without an error: exit 0 in a log, or the one that the launcher's failure table lacks."""
    for left in facts.all(ExitOk):
        if left.rank is not None:
            facts.left_quietly.setdefault(left.rank, "its process ended without an error")
    for rank, event in facts.exits.items():
        if event.code == 0:
            facts.left_quietly.setdefault(rank, "its process exited with code 0")
    listed = set(facts.exits)
    missing = [r for r in incident.ranks if r not in listed and r not in facts.left_quietly]
    if listed and missing and len(missing) * 2 <= len(incident.ranks):
        for rank in _of_its_nodes(facts.exits, missing, len(incident.ranks)):
            if not facts.of(rank, GlooClosed, GlooTimeout) and not any(
                e.symptom for e in facts.of(rank, RankException)
            ):
                facts.left_quietly[rank] = (
                    "the launcher's failure table lists the other ranks and not this one, so it exited with code 0"
                )


def _of_its_nodes(exits: dict[int, Exit], missing: list[int], world_size: int) -> list[int]:
    """Return those of the missing ranks that are on the nodes of the ranks which a launcher lists.

    Each node's launcher lists its own workers alone. Ranks of a node follow each other by their local ranks.
    """
    local = {rank: event.local_rank for rank, event in exits.items()}
    known = {rank: n for rank, n in local.items() if isinstance(n, int) and 0 <= n <= rank}
    if len(known) < len(exits):
        return missing
    per_node = max(known.values()) + 1
    if len(missing) == 1 and world_size == per_node + 1:
        per_node += 1  # one node, whose last worker is the missing one
    first = {rank - n for rank, n in known.items()}
    return [rank for rank in missing if any(base <= rank < base + per_node for base in first)]


def _whereabouts(incident: Incident, rank: int, facts: Facts) -> Whereabouts | None:
    record = incident.ranks[rank]
    for _, stack in record.threads:
        return _locate(rank, stack, record.stack_file or "a stack dump", "stack")
    shown = [(e.frames, e.file, False) for e in facts.of(rank, FailedStack)]
    shown += [(e.frames, e.file, False) for e in facts.of(rank, RankException) if e.symptom]
    shown += [(e.frames, e.file, True) for e in facts.of(rank, RankException) if e.type == _CTRL_C]
    for stack, file, interrupted in shown:
        stood = before_signal(stack, own_knowledge())
        if stood:  # whose signal handler waits for others stood somewhere else when the signal came
            return _locate(rank, stood, file, "stack" if interrupted or stood != stack else "log")
    return None


def _locate(rank: int, stack: Stack, source: str, kind: str) -> Whereabouts:
    op = None
    inside = False
    for frame in stack:
        if (
            frame.file.endswith(_COLLECTIVE_FILES)
            and frame.name not in _NOT_OPS
            and not frame.name.startswith("_")
        ):
            op, inside = frame.name, True  # the outermost one is what the user called
        elif frame.name == "_engine_run_backward":
            inside = True
    # An error of the communication layer is raised by a call that waits, whoever makes it: also by one from C++ code.
    inside = inside or kind == "log"
    if re.search(r"batch_isend_irecv|monitored_barrier", op or ""):
        op = None if op and "batch" in op else op
    return Whereabouts(rank, inside, op, stack, source, kind)
