"""Rules about ranks that came late and hang nowhere."""

from __future__ import annotations

from hangscope.align.nodes import Untold
from hangscope.causes.case import Case, Match, answer, who
from hangscope.conclusion import Evidence
from hangscope.explain.finding import Late
from hangscope.incident import State
from hangscope.ingest.torch_logs.c10d import DumpObserved, WatchdogTimeout
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier


def late(case: Case) -> Match | None:
    """A rank came later than its peers were willing to wait, with the very call they were in."""
    finding = case.finding
    if not isinstance(finding, Late):
        return None
    own = [e for r in finding.culprits for e in case.statements.of(r, CallFingerprint)[:1]]
    return answer(
        "slow_rank",
        finding.culprits,
        f"{who(finding.culprits)} made the same call after the others had given up waiting",
        f"Give the group a longer timeout if {who(finding.culprits)}'s pause is legitimate, or move that work out of the step.",
        strength=1 if finding.events else 2,
        evidence=[*finding.events, *own, *case.statements.all(MonitoredBarrier)[:1]],
    )


def came_late(case: Case) -> Match | None:
    """Watchdogs timed out, and yet every call is complete in the dumps: somebody was slow, nobody hangs."""
    timeouts, records = case.statements.all(WatchdogTimeout), case.incident.ranks
    # Of a call whose peers no line tells, nothing but the timeout itself says that it is still open.
    opened = (call.node for calls in case.graph.open_calls.values() for call in calls)
    waiting = any(not isinstance(node, Untold) for node in opened)
    if not timeouts or waiting or case.statements.deaths or not _went_on(case, timeouts):
        return None
    told = {e.rank for e in timeouts}
    silent = [r for r in sorted(records) if r not in told]
    # Only a rank whose log is here can be said to have timed out on nobody.
    logged = all(set(records[r].files) - {records[r].dump_file} for r in silent)
    culprits = silent if logged and len(silent) * 2 < len(records) else []
    complete = Evidence("dump", "no dump has an open call: what timed out is complete in every one")
    idle = [e for r in culprits for e in case.statements.of(r, DumpObserved)[:1]]
    return answer(
        "slow_rank",
        culprits,
        f"{who(culprits, 'a rank')} came later than the timeout; the call that the others gave up on did complete",
        f"Find what kept {who(culprits, 'the late rank')} (checkpoint, validation, compilation, data) and move it out of the step, or give that group a longer timeout with the reason.",
        strength=2 if culprits else 0,
        evidence=[timeouts[0], complete, *idle],
    )


def _went_on(case: Case, timeouts: list[WatchdogTimeout]) -> bool:
    """Return whether dumps show that the calls which timed out were completed, and no rank stands still."""
    records, kinds = case.incident.ranks.values(), case.incident.kinds
    if records and all(r.seen and r.dump_file for r in records):
        return True
    dumped = [r for r in records if r.dump_file]
    made = {
        (int(seq), kinds[int(kind)].op)
        for record in dumped[:8]
        for queue in record.queues.values()
        for seq, kind, state in zip(queue.seq, queue.kind, queue.state, strict=True)
        if int(state) == State.DONE
    }
    return len(dumped) > 1 and not made.isdisjoint((e.seq, e.op) for e in timeouts)
