"""Rules about ranks that came late and hang nowhere."""

from __future__ import annotations

from hangscope.align.nodes import Untold
from hangscope.align.rankset import ranks_phrase
from hangscope.causes.case import Case, Match, quote
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Late
from hangscope.incident import State
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier


def late(case: Case) -> Match | None:
    """A rank came later than its peers were willing to wait, with the very call they were in."""
    if not isinstance(case.finding, Late):
        return None
    culprits = case.finding.culprits
    return Match(
        "slow_rank",
        culprits,
        f"{ranks_phrase(culprits)} made the same call after the others had given up waiting",
        strength=1 if case.finding.events else 2,
        evidence=[quote(e) for e in case.finding.events]
        + [quote(e) for r in culprits for e in case.statements.of(r, CallFingerprint)[:1]]
        + [quote(e) for e in case.statements.all(MonitoredBarrier)[:1]],
        advice=[
            f"Give the group a longer timeout if {ranks_phrase(culprits)}'s pause is legitimate, or move that work out of the step."
        ],
        frame=case.frame_of(case.finding.own.kind),
    )


def came_late(case: Case) -> Match | None:
    """Watchdogs timed out, and yet every call is complete in the dumps: somebody was slow, nobody hangs."""
    timeouts = case.statements.all(WatchdogTimeout)
    # Of a call whose peers no line tells, nothing but the timeout itself says that it is still open.
    waiting = any(
        not isinstance(call.node, Untold) for calls in case.graph.open_calls.values() for call in calls
    )
    if not timeouts or waiting or case.statements.deaths or not _went_on(case, timeouts):
        return None
    told = {e.rank for e in timeouts if e.rank is not None}
    silent = tuple(r for r in sorted(case.incident.ranks) if r not in told)
    # Only a rank whose log is here can be said to have timed out on nobody.
    logged = all(
        any(f != case.incident.ranks[r].dump_file for f in case.incident.ranks[r].files) for r in silent
    )
    culprits = silent if logged and len(silent) * 2 < len(case.incident.ranks) else ()
    event = timeouts[0]
    return Match(
        "slow_rank",
        culprits,
        f"{ranks_phrase(culprits) if culprits else 'a rank'} came later than the timeout; the call that the others gave up on did complete",
        strength=2 if culprits else 0,
        evidence=[
            quote(event),
            Evidence("dump", "no dump has an open call: what timed out is complete in every one"),
            *[quote(e) for r in culprits for e in case.statements.of(r, DumpObserved)[:1]],
        ],
        advice=[
            f"Find what kept {ranks_phrase(culprits) if culprits else 'the late rank'} (checkpoint, validation, compilation, data) and move it out of the step, or give that group a longer timeout with the reason."
        ],
    )


def _went_on(case: Case, timeouts: list[WatchdogTimeout]) -> bool:
    """Return whether dumps show that the calls which timed out were completed, and no rank stands still."""
    records = case.incident.ranks.values()
    if records and all(r.seen and r.dump_file for r in records):
        return True
    dumped = [r for r in records if r.dump_file]
    calls = {(e.seq, e.op) for e in timeouts}
    kinds = case.incident.kinds
    made = {
        (int(seq), kinds[int(kind)].op)
        for record in dumped[:8]
        for queue in record.queues.values()
        for seq, kind, state in zip(queue.seq, queue.kind, queue.state, strict=True)
        if int(state) == State.DONE
    }
    return len(dumped) > 1 and bool(calls & made)
