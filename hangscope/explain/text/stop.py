"""The proof that a job hung, and what it shows without naming anybody: who was blocked, in which collective, since when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from time import gmtime, strftime

from hangscope.explain.statements.standstill import HOUR, by_steps
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.activity import EngineTimeout, WaitedFor
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.messages import HcclTimeout, Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.lines.vocabulary import states_a_hang, words
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    Nccl2Timeout,
    ProcessDown,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.reports import Desync
from hangscope.ingest.torch_logs.store import GatherUnfilled
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import (
    GlooClosed,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import CallKind, group_label
from hangscope.model.rankset import counted, ranks_phrase

#: Kinds of lines that prove that a rank waited until a timeout, the most telling first.
PROOFS: tuple[type[Event], ...] = (
    WatchdogTimeout, WatchdogStatus, Desync, GlooTimeout, MonitoredBarrier, HeartbeatTimeout, DumpSignal, DumpObserved,
    MonitoredBarrierWitness, Nccl2Timeout, HcclTimeout, EngineTimeout, WaitedFor, AsyncError, GlooClosed, GatherUnfilled, AnalyzerReport,
    ProcessDown,
)  # fmt: skip
#: What NCCL warns of a peer that is gone, or of a connection that could not be made: nobody goes on after either.
_GONE = frozenset({"closed_by_peer", "set_up"})
_Call = WatchdogTimeout | WatchdogStatus | Desync | AnalyzerReport


@dataclass(frozen=True, slots=True)
class Stop:
    """What is known of a stop. `ranks` are global and only those that were seen waiting.

    `group` is (name, description) as printed, of which either may be empty. `timed` is a line of the watchdog that shows how
    long the collective ran; `in_flight` counts those that were enqueued and not completed. `events` are the lines that prove it,
    the most telling first.
    """

    ranks: tuple[int, ...]
    call: CallKind | None
    seq: int | None
    group: tuple[str, str]
    timed: WatchdogTimeout | None
    in_flight: int
    events: tuple[Event, ...]

    @property
    def until(self) -> float | None:
        """Return when the collective was given up, in seconds since the epoch."""
        return self.timed.time if self.timed is not None else None

    @property
    def since(self) -> float | None:
        """Return when the collective was enqueued, in seconds since the epoch."""
        return begun(self.until, self._ran) if self.until is not None else None

    @property
    def _ran(self) -> float:
        return (self.timed.ran_ms or 0) / 1000 if self.timed is not None else 0.0

    def phrase(self) -> str:
        """Return it as a clause: `ranks 0-3 timed out in all_reduce seq 31 on group 0 (default_pg)`."""
        if isinstance(self.events[0], Exit):
            how = "which is how watchdogs end blocked ranks"
            return f"the launcher reports aborted processes (SIGABRT), {how}"
        if isinstance(self.events[0], Excerpt):
            silence = f"nothing was printed for {self.events[0].gave_up} s, the length of a timeout"
            return f"{silence}, before the first error: the processes that print it had waited until then"
        stalled = "reported a stall" + (" in collective" if self.seq is not None else "")
        what = f"timed out in {self.call.op}" if self.call is not None and self.call.op else stalled
        if self.call is not None and self.call.input_sizes:
            what += f" ({counted(self.call.input_sizes[0][0], 'element')})"
        who = ranks_phrase(self.ranks) if self.ranks else "a process"
        seq = f" seq {self.seq}" if self.seq is not None else ""
        group = f" on group {group_label(*self.group)}" if self.group[0] else ""
        stamp = self.timed.stamp if self.timed is not None else None
        span = f" from {clock(begun(stamp, self._ran))} to {clock(stamp)}" if stamp is not None else ""
        calls = f", {counted(self.in_flight, 'collective')} in flight" if self.in_flight > 0 else ""
        return f"{who} {what}{seq}{group}{span}{calls}"


def begun(ended: float, seconds: float) -> float:
    """Return when something began that lasted so long; an end without a fraction is any moment of its second, so that whole seconds lie before it."""
    return ended - (seconds if ended % 1 else round(seconds))


def clock(stamp: float | None) -> str:
    """Return the time of day of a stamp, empty where there is none."""
    return strftime("%H:%M:%S", gmtime(stamp)) if stamp is not None else ""


def find_stop(statements: Statements) -> Stop | None:
    """Return the proof that the job hung, or None where no line proves it."""
    events = proofs(statements)
    if not events:
        return None
    call = _most_waited_for(statements)
    proof: list[Event] = [*call] or events
    return Stop(
        tuple(sorted({rank for e in proof for rank in _waiting(e)})),
        next((kind for e in call if (kind := _kind(e)) is not None), None),
        next((e.seq for e in call if e.seq is not None), None),
        next(((e.group_name, e.group_desc or "") for e in call if e.group_name), ("", "")),
        next((e for e in call if isinstance(e, WatchdogTimeout) and e.ran_ms is not None), None),
        next((e.last_enqueued - max(0, e.last_completed) for e in call if isinstance(e, WatchdogStatus)), 0),
        tuple(proof[:4]),
    )


def says_it_hangs(statements: Statements) -> bool:
    """Return whether a sentence of a person states that the job hangs; a question, a doubt or a warning states nothing."""
    return any(states_a_hang(e.prose) for e in statements.all(Excerpt))


def unmoved(statements: Statements) -> bool:
    """Return whether a person states that stacks were taken more than once and did not change."""
    return any(words("unmoved").search(e.prose) for e in statements.all(Excerpt))


def stopped(statements: Statements) -> bool:
    """Return whether a line proves that the job hung, or a person states it."""
    return bool(proofs(statements)) or says_it_hangs(statements)


def proofs(statements: Statements) -> list[Event]:
    """Return the lines that prove a stop; a message proves none before lines that continue at an even pace, Horovod's none before a step."""
    steady_to = {e.file: e.steady_to for e in statements.all(Excerpt)}
    steps = {e.file: e.line for e in sorted(statements.all(Progress), key=lambda e: e.line)}
    messages = (e for e in statements.all(Message) if e.id in table() and table()[e.id].stops)
    events = [
        *statements.all(*PROOFS),
        *(e for e in statements.all(NcclWarn) if e.fault in _GONE),
        *(e for e in messages if e.line > steady_to.get(e.file, 0)),
        *(e for e in statements.all(RankException) if e.symptom),
        *(e for e in statements.all(HorovodStall) if e.line >= steps.get(e.file, 0)),
    ]
    events = events or [e for e in statements.all(Excerpt) if e.gave_up]
    exits = [e for e in statements.all(Exit) if e.code not in (0, -15)]
    # Watchdogs abort processes that wait: several that were aborted, and none that ended otherwise. An end hours after the last step
    # of a job that made one every few seconds is that of a freeze.
    aborted = len(exits) > 1 and all(e.signal == "SIGABRT" for e in exits)
    end = statements.external
    frozen = end is not None and by_steps(statements, end, HOUR)
    return events or [*(exits if aborted else [end] if end is not None and frozen else ())]


def _waiting(event: Event) -> Collection[int]:
    """Return the ranks (global) that a line shows waiting: its printer, or those that torch's analyzer does not miss."""
    if isinstance(event, AnalyzerReport):
        return set(event.expected) - set(event.named) if event.what == "absent" else ()
    alive = isinstance(event, DumpObserved | Exit | ExternalEnd | Excerpt)
    return (event.rank,) if event.rank is not None and not alive else ()


def _most_waited_for(statements: Statements) -> Sequence[_Call]:
    """Return the lines about the collective that most ranks waited in, and about none with its number; of equals the first that is printed."""
    events: list[_Call] = [*statements.all(WatchdogTimeout), *statements.all(WatchdogStatus)]
    events += [*statements.all(Desync), *statements.all(AnalyzerReport)]
    numbered = [e for e in events if e.seq is not None]
    votes = Counter(e.seq for e in numbered if e.kind == numbered[0].kind)
    most = max(votes, key=lambda seq: (votes[seq], -(seq or 0)), default=None)
    of_one = [e for e in numbered if e.seq == most]
    ops = Counter(kind.op for e in of_one if (kind := _kind(e)) is not None)
    usual = [op for op, _ in ops.most_common(1)]
    return [e for e in of_one if (kind := _kind(e)) is None or kind.op in usual] or events


def _kind(event: _Call) -> CallKind | None:
    """Return the collective that a line is about."""
    if isinstance(event, WatchdogTimeout):
        sizes, outs = (((n,),) if n else () for n in (event.numel_in, event.numel_out))
        return CallKind(event.op, "nccl", sizes, outs)
    op = event.op if not isinstance(event, WatchdogStatus) else event.started_op
    started = not isinstance(event, WatchdogStatus) or event.last_started == event.seq
    return CallKind(op, "nccl") if op and started else None
