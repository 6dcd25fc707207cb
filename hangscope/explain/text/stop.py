"""The proof that a job stood still, and what it shows without naming anybody: who was blocked, in which call, since when.

A watchdog's, gloo's or HCCL's timeout, a dump signal, a desync report, a timeout of the store, a heartbeat that stopped: each
proves the stop, and none of them says who is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from time import gmtime, strftime

from hangscope.explain.statements.standstill import for_hours
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.job_logs.activity import EngineTimeout
from hangscope.ingest.job_logs.endings import Exit, ExternalEnd
from hangscope.ingest.job_logs.excerpt import Excerpt
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.messages import Message, table
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.hccl import HcclTimeout
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
from hangscope.ingest.torch_logs.desync import Desync
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
    MonitoredBarrierWitness, Nccl2Timeout, HcclTimeout, EngineTimeout, AsyncError, GlooClosed, GatherUnfilled, AnalyzerReport,
    ProcessDown,
)  # fmt: skip
#: What NCCL warns of a peer that is gone, or of a connection that could not be made: nobody goes on after either.
_GONE = frozenset({"closed_by_peer", "set_up"})
_Call = WatchdogTimeout | WatchdogStatus | Desync | AnalyzerReport


@dataclass(frozen=True, slots=True)
class Stop:
    """What is known of a stop. `ranks` are global and only those that were seen waiting.

    `group` is (name, description) as printed, of which either may be empty. `timed` is a line of the watchdog that tells how
    long the call ran; `in_flight` counts the calls that were enqueued and not completed. `events` are the lines that prove it,
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
        """Return when the call was given up, in seconds since the epoch."""
        return self.timed.time if self.timed is not None else None

    @property
    def since(self) -> float | None:
        """Return when the call was enqueued, in seconds since the epoch."""
        return self.until - self._ran if self.until is not None else None

    @property
    def _ran(self) -> float:
        return (self.timed.ran_ms or 0) / 1000 if self.timed is not None else 0.0

    def phrase(self) -> str:
        """Return it as a clause: `ranks 0-3 timed out in all_reduce seq 31 on group 0 (default_pg)`."""
        if isinstance(self.events[0], Exit):
            return (
                "the launcher reports aborted processes (SIGABRT), which is how watchdogs end blocked ranks"
            )
        if isinstance(self.events[0], ExternalEnd):
            return (
                "no step was logged in the hours before the job was terminated, far longer than any step took"
            )
        who = ranks_phrase(self.ranks) if self.ranks else "a process"
        what = f"timed out in {self.call.op}" if self.call is not None and self.call.op else ""
        if not what:
            what = "reported a stall" + (" in collective" if self.seq is not None else "")
        if self.call is not None and self.call.input_sizes and self.call.input_sizes[0][0]:
            what += f" ({counted(self.call.input_sizes[0][0], 'element')})"
        seq = f" seq {self.seq}" if self.seq is not None else ""
        group = f" on group {group_label(*self.group)}" if self.group[0] else ""
        span = ""
        if self.timed is not None and self.timed.stamp is not None:
            span = f" from {_clock(self.timed.stamp - self._ran)} to {_clock(self.timed.stamp)}"
        calls = f", {counted(self.in_flight, 'collective')} in flight" if self.in_flight > 0 else ""
        return f"{who} {what}{seq}{group}{span}{calls}"


def _clock(moment: float) -> str:
    return strftime("%H:%M:%S", gmtime(moment))


def find_stop(statements: Statements) -> Stop | None:
    """Return the proof that the job stood still, or None where no line proves it."""
    events = [*statements.all(*PROOFS), *(e for e in statements.all(NcclWarn) if e.fault in _GONE)]
    events += [e for e in statements.all(Message) if (known := table().get(e.id)) is not None and known.stops]
    events += [e for e in statements.all(RankException) if e.symptom]
    even = {
        e.file: e.steady_to for e in statements.all(Excerpt)
    }  # whoever works evenly behind it did not stop
    events = [e for e in events if not isinstance(e, Message) or e.line > even.get(e.file, 0)]
    steps = statements.all(Progress)
    events += [
        e
        for e in statements.all(HorovodStall)
        if not any(s.file == e.file and s.line > e.line for s in steps)
    ]
    events = events or _aborted(statements) or _frozen(statements)
    if not events:
        return None
    told: list[_Call] = [*statements.all(WatchdogTimeout), *statements.all(WatchdogStatus)]
    call = _call_of([*told, *statements.all(Desync), *statements.all(AnalyzerReport)])
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


def _aborted(statements: Statements) -> list[Event]:
    """Return the ends that a launcher tells of, where several processes were aborted and none ended otherwise: as watchdogs do to those that wait."""
    exits = [e for e in statements.all(Exit) if e.code not in (0, -15)]
    return [*exits] if len(exits) > 1 and all(e.signal == "SIGABRT" for e in exits) else []


def _frozen(statements: Statements) -> list[Event]:
    """Return the line of an end from outside that came hours after the last step, of a job that made one every few seconds."""
    end = statements.external
    return [end] if end is not None and for_hours(statements, end) is not None else []


def _waiting(event: Event) -> Collection[int]:
    """Return the ranks (global) that a line shows waiting: its printer, or those that torch's analyzer does not miss."""
    if isinstance(event, AnalyzerReport):
        return set(event.expected) - set(event.named) if event.what == "absent" else ()
    return () if event.rank is None or isinstance(event, DumpObserved | Exit | ExternalEnd) else (event.rank,)


def _call_of(events: Sequence[_Call]) -> Sequence[_Call]:
    """Return the lines about the call that most ranks waited in; of equals the first that is printed."""
    told = [e for e in events if e.seq is not None]
    votes = Counter(e.seq for e in told if e.kind == told[0].kind)
    most = max(votes, key=lambda seq: (votes[seq], -(seq or 0)), default=None)
    return [e for e in told if e.seq == most] or events


def _kind(event: _Call) -> CallKind | None:
    """Return the call that a line tells of."""
    if isinstance(event, WatchdogTimeout):
        sizes, outs = (((n,),) if n is not None else () for n in (event.numel_in, event.numel_out))
        return CallKind(event.op, "nccl", sizes, outs)
    if isinstance(event, WatchdogStatus):
        op = event.started_op if event.last_started == event.seq else None
    else:
        op = event.op
    return CallKind(op, "nccl") if op else None
