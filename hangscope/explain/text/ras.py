"""What NCCL's RAS and its Inspector plugin show: ranks that are missing, dead, or behind in launched or completed calls.

Different counts in one snapshot are normal in a running job; two snapshots with the same different counts are a freeze.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.explain.finding import Absent, AnyFinding, Extra, Finding, OwnCall, StuckCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.incident import CallKind, Incident
from hangscope.ingest.nccl.ras.snapshot import NcclRas


def ras(incident: Incident, statements: Statements) -> Finding | None:
    """Name whom RAS lists as dead or missing, then whom it counts behind, then who completed fewest."""
    events = statements.all(NcclRas)
    for what in ("dead", "missing"):
        named = [e for e in events if e.what == what]
        ranks, assumed = _ranks(named, incident)
        if ranks and len(ranks) < len(incident.ranks):
            return _finding(incident, Unseen, ranks, named, assumed)
    behind = [e for e in events if e.what == "behind"]
    ahead = [e for e in events if e.what == "ahead"]
    still = is_frozen(events)
    if still is False:
        return None  # the counts moved between the snapshots
    kinds: tuple[tuple[type[Finding], list[NcclRas]], ...] = ((Absent, behind), (Extra, ahead))
    for kind, found in kinds:
        ranks, assumed = _ranks(found, incident)
        if ranks and len(ranks) * 2 <= len(incident.ranks):
            return _finding(incident, kind, ranks, found, assumed, guess=still is None)
    return _completed(incident, [e for e in events if e.what == "completed"])


def is_frozen(events: Sequence[NcclRas]) -> bool | None:
    """Return whether the last two snapshots count the same different numbers; None where there is one snapshot only."""
    snapshots: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for event in events:
        if event.what in ("behind", "ahead"):
            counted = (event.comm, event.op, event.comm_rank, event.count)
            snapshots[str(event.snapshot or event.file)].add(counted)
    moments = sorted(snapshots)
    return snapshots[moments[-1]] == snapshots[moments[-2]] if len(moments) > 1 else None


def _ranks(events: Sequence[NcclRas], incident: Incident) -> tuple[tuple[int, ...], bool]:
    """Return global ranks and whether the rank in a communicator was taken for the rank in the job."""
    ranks: set[int] = set()
    assumed = False
    for event in events:
        local = event.comm_rank
        if event.rank is not None:
            ranks.add(event.rank)
        elif local is not None and local in incident.ranks:
            ranks.add(local)
            assumed = True
    return tuple(sorted(ranks)), assumed


def _finding(
    incident: Incident, kind: type[AnyFinding], ranks: tuple[int, ...], events: Sequence[NcclRas], assumed: bool,
    guess: bool = False,
) -> AnyFinding:  # fmt: skip
    waiting = tuple(r for r in sorted(incident.ranks) if r not in ranks)
    op = next((str(e.op) for e in events if e.op), None)
    call = CallKind(op, "nccl") if op else None
    return kind(
        ranks, StuckCall(rank=waiting[0] if waiting else None, kind=call), OwnCall(call if kind is Extra else None),
        waiting=waiting, reached=frozenset(waiting), assumed=assumed, guess=guess, events=tuple(events),
    )  # fmt: skip


def _completed(incident: Incident, events: Sequence[NcclRas]) -> Finding | None:
    """Name the ranks whose last completed call of one communicator and op has a smaller number than all others'."""
    last: dict[tuple[str, str], dict[int, tuple[int, NcclRas]]] = defaultdict(dict)
    for event in events:
        local, count = event.comm_rank, event.count
        if local is not None and count is not None:
            last[(str(event.comm), str(event.op))][local] = (count, event)
    for (_, _), ranks in sorted(last.items()):
        counts = {count for count, _ in ranks.values()}
        low = [event for count, event in ranks.values() if count == min(counts)]
        if len(counts) > 1 and len(low) * 2 < len(ranks):
            named, assumed = _ranks(low, incident)
            if named:
                return _finding(incident, Absent, named, low, assumed, guess=True)
    return None
