"""The proof that a job stood still, and what it tells without naming anybody: who waited, in which call, since when.

A watchdog's, gloo's or HCCL's timeout, a dump signal, a desync report, a timeout of the store, a heartbeat that stopped: each
proves the stop, and none of them says who is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from hangscope.align.rankset import ranks_phrase
from hangscope.dataclass import dataclass
from hangscope.events import Event
from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind
from hangscope.ingest.job_logs.endings import Exit
from hangscope.ingest.job_logs.engines import EngineTimeout
from hangscope.ingest.nccl.hccl import HcclTimeout
from hangscope.ingest.nccl.warn import NcclWarn
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.c10d import (
    AsyncError,
    DumpObserved,
    DumpSignal,
    HeartbeatTimeout,
    ProcessDown,
    WatchdogStatus,
    WatchdogTimeout,
)
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.nccl2 import Nccl2Timeout
from hangscope.ingest.torch_logs.store import GatherUnfilled
from hangscope.ingest.torch_logs.wrapper import (
    GlooClosed,
    GlooTimeout,
    MonitoredBarrier,
    MonitoredBarrierWitness,
)

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

    `group` is (name, description) as printed, of which either may be empty. `in_flight` counts the calls that were
    enqueued and not completed. `since` and `until` are seconds since the epoch, `stamps` the same as printed where no
    year is (seconds since 1 January). `events` are the lines that prove it, the most telling first.
    """

    ranks: tuple[int, ...]
    call: CallKind | None
    seq: int | None
    group: tuple[str, str]
    in_flight: int | None
    since: float | None
    until: float | None
    stamps: tuple[float, float] | None
    events: tuple[Event, ...]


def find_stop(statements: Statements) -> Stop | None:
    """Return the proof that the job stood still, or None where no line proves it."""
    events: list[Event] = [e for kind in PROOFS for e in statements.all(kind)]
    events += [e for e in statements.all(NcclWarn) if e.fault in _GONE]
    events = events or _aborted(statements)
    if not events:
        return None
    call = _call_of(
        [
            *statements.all(WatchdogTimeout),
            *statements.all(WatchdogStatus),
            *statements.all(Desync),
            *statements.all(AnalyzerReport),
        ]
    )
    timed = next((e for e in call if isinstance(e, WatchdogTimeout) and e.ran_ms is not None), None)
    ran = timed.ran_ms / 1000 if timed is not None and timed.ran_ms is not None else None
    until = timed.time if timed is not None else None
    stamp = timed.stamp if timed is not None else None
    proof: list[Event] = [*call] or events
    return Stop(
        tuple(sorted({rank for e in proof for rank in _waiting(e)})),
        _kind(call),
        next((e.seq for e in call if e.seq is not None), None),
        next(((e.group_name, e.group_desc or "") for e in call if e.group_name), ("", "")),
        _in_flight(call),
        until - ran if until is not None and ran is not None else None,
        until,
        (stamp - ran, stamp) if stamp is not None and ran is not None else None,
        tuple(proof[:4]),
    )


def _aborted(statements: Statements) -> list[Event]:
    """Return the ends that a launcher tells of, where several processes were aborted and none ended otherwise: as watchdogs do to those that wait."""
    exits = [e for e in statements.all(Exit) if e.code not in (0, -15)]
    return [*exits] if len(exits) > 1 and all(e.signal == "SIGABRT" for e in exits) else []


def _waiting(event: Event) -> Collection[int]:
    """Return the ranks (global) that a line shows waiting: its printer, or those that torch's analyzer does not miss."""
    if isinstance(event, AnalyzerReport):
        return set(event.expected) - set(event.named) if event.what == "absent" else ()
    return () if event.rank is None or isinstance(event, DumpObserved | Exit) else (event.rank,)


def _call_of(events: Sequence[_Call]) -> list[_Call]:
    """Return the lines about the call that most ranks waited in; of equals the first that is printed.

    A `WorkNCCL` line names no group: it belongs to the status line of the same rank and number.
    """
    told = [e for e in events if e.seq is not None]
    if not told:
        return list(events)
    votes = Counter(e.seq for e in told if e.kind == told[0].kind)
    most = max(votes, key=lambda seq: (votes[seq], -(seq or 0)))
    return [e for e in told if e.seq == most]


def _kind(events: Sequence[_Call]) -> CallKind | None:
    for event in events:
        if isinstance(event, WatchdogTimeout):
            sizes, outs = (((n,),) if n is not None else () for n in (event.numel_in, event.numel_out))
            return CallKind(event.op, "nccl", sizes, outs)
        if isinstance(event, Desync | AnalyzerReport) and event.op:
            return CallKind(event.op, "nccl")
        if isinstance(event, WatchdogStatus) and event.started_op and event.last_started == event.seq:
            return CallKind(event.started_op, "nccl")
    return None


def _in_flight(events: Sequence[_Call]) -> int | None:
    for event in events:
        if isinstance(event, WatchdogStatus) and event.last_enqueued >= event.last_completed:
            return event.last_enqueued - event.last_completed
    return None


def told_of(stop: Stop) -> str:
    """Return what a stop tells in a sentence's words: `ranks 0-3 waited in all_reduce seq 31 of group 0 (default_pg)`."""
    if isinstance(stop.events[0], Exit):
        return "a launcher saw its processes aborted (SIGABRT), as watchdogs do to those that wait"
    who = ranks_phrase(stop.ranks) if stop.ranks else "a rank that no line names"
    what = f"in {stop.call.op}" if stop.call is not None else "for its peers"
    sizes = stop.call.input_sizes if stop.call is not None else ()
    outs = stop.call.output_sizes if stop.call is not None else ()
    if sizes:
        what += (
            f" ({sizes[0][0]:,} elements in, {outs[0][0]:,} out)" if outs else f" ({sizes[0][0]:,} elements)"
        )
    seq = f" seq {stop.seq}" if stop.seq is not None else ""
    name, desc = stop.group
    group = f" of group {name} ({desc})" if desc and desc != name else f" of group {name}" if name else ""
    calls = f", {stop.in_flight} call{'s' if stop.in_flight != 1 else ''} in flight" if stop.in_flight else ""
    return f"{who} waited {what}{seq}{group}{_span(stop)}{calls}"


def _span(stop: Stop) -> str:
    if stop.stamps is None:
        return ""
    since, until = (
        f"{int(moment) % 86400 // 3600:02}:{int(moment) % 3600 // 60:02}:{int(moment) % 60:02}"
        for moment in stop.stamps
    )
    return f" from {since} to {until}"
