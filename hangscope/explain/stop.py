"""The proof that a job stood still, and what it tells without naming anybody: who waited, in which call, since when.

A watchdog's or gloo's timeout, a dump signal, a desync report, a timeout of the store, a heartbeat that stopped: each
proves the stop, and none of them says who is to blame.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hangscope.align.rankset import ranks_phrase
from hangscope.explain.facts import Facts
from hangscope.incident import CallKind, Event

#: Kinds of lines that prove that a rank waited until a timeout, the most telling first.
PROOFS = (
    "watchdog_timeout", "watchdog_status", "desync", "gloo_timeout", "monitored_barrier", "heartbeat_timeout",
    "dump_signal", "dump_observed", "monitored_barrier_witness", "async_error", "gloo_closed", "no_progress",
)  # fmt: skip
_OF_A_CALL = ("watchdog_timeout", "watchdog_status", "desync")


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


def find_stop(facts: Facts) -> Stop | None:
    """Return the proof that the job stood still, or None where no line proves it."""
    events = [e for kind in PROOFS for e in facts.all(kind) if not e.fields.get("teardown")]
    if not events:
        return None
    call = _call_of(events)
    timed = next((e for e in call if isinstance(e.fields.get("ran_ms"), int)), None)
    ran = timed.fields["ran_ms"] / 1000 if timed is not None else None
    stamp = timed.fields.get("stamp") if timed is not None else None
    until = timed.time if timed is not None else None
    return Stop(
        tuple(sorted({e.rank for e in call or events if e.rank is not None and e.kind != "dump_observed"})),
        _kind(call),
        next((int(e.fields["seq"]) for e in call if isinstance(e.fields.get("seq"), int)), None),
        _group(call),
        _in_flight(call),
        until - ran if until is not None and ran is not None else None,
        until,
        (stamp - ran, stamp) if isinstance(stamp, float) and ran is not None else None,
        tuple((call or events)[:4]),
    )


def _call_of(events: Sequence[Event]) -> list[Event]:
    """Return the lines about the call that most ranks waited in; of equals the first that is printed.

    A `WorkNCCL` line names no group: it belongs to the status line of the same rank and number.
    """
    told = [e for e in events if e.kind in _OF_A_CALL and isinstance(e.fields.get("seq"), int)]
    if not told:
        return [e for e in events if e.kind in _OF_A_CALL]
    votes = Counter(int(e.fields["seq"]) for e in told if e.kind == told[0].kind)
    most = max(votes, key=lambda seq: (votes[seq], -seq))
    return [e for e in told if e.fields["seq"] == most]


def _kind(events: Sequence[Event]) -> CallKind | None:
    for event in events:
        if event.fields.get("op"):
            sizes, outs = (
                ((n,),) if isinstance(n := event.fields.get(name), int) else ()
                for name in ("numel_in", "numel_out")
            )
            return CallKind(str(event.fields["op"]), "nccl", sizes, outs)
    return None


def _group(events: Sequence[Event]) -> tuple[str, str]:
    for event in events:
        if event.fields.get("group_name"):
            return (str(event.fields["group_name"]), str(event.fields.get("group_desc") or ""))
    return ("", "")


def _in_flight(events: Sequence[Event]) -> int | None:
    for event in events:
        enqueued, completed = event.fields.get("last_enqueued"), event.fields.get("last_completed")
        if isinstance(enqueued, int) and isinstance(completed, int) and enqueued >= completed:
            return enqueued - completed
    return None


def told_of(stop: Stop) -> str:
    """Return what a stop tells in a sentence's words: `ranks 0-3 waited in all_reduce seq 31 of group 0 (default_pg)`."""
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
