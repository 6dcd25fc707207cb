"""What NCCL's RAS and its Inspector plugin show: ranks that are missing, dead, or behind in launched or completed calls.

Different counts in one snapshot are normal in a running job; two snapshots with the same different counts are a freeze.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from hangscope.explain.finding import Absent, Extra, Finding, OwnCall, StuckCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.model.incident import CallKind, Incident


def ras(incident: Incident, statements: Statements) -> Finding | None:
    """Name whom RAS lists as dead or missing, then whom it counts behind, then who completed fewest."""
    listed: dict[str, list[NcclRas]] = defaultdict(list)
    for event in statements.all(NcclRas):
        listed[event.what].append(event)
    kinds: tuple[tuple[type[Finding], list[NcclRas]], ...] = (
        (Unseen, listed["dead"]),
        (Unseen, listed["missing"]),
        (Absent, listed["behind"]),
        (Extra, listed["ahead"]),
        (Absent, _fewest(listed["completed"])),
    )
    still = _is_frozen([*listed["behind"], *listed["ahead"]])
    for kind, events in kinds:
        counted = kind is not Unseen
        if counted and still is False:
            return None  # the counts moved between the snapshots
        # A number in a communicator is taken for the rank in the job where no line tells that.
        named = {e.comm_rank if e.rank is None else e.rank for e in events}
        ranks = tuple(rank for rank in sorted(incident.ranks) if rank in named)
        if (
            ranks
            and len(ranks) < len(incident.ranks)
            and (not counted or 2 * len(ranks) <= len(incident.ranks))
        ):
            op = next((e.op for e in events if e.op), None)
            call = CallKind(op, "nccl") if op else None
            return kind(
                ranks, StuckCall(kind=call), OwnCall(call if kind is Extra else None),
                assumed=any(e.rank is None for e in events), guess=counted and not still, events=tuple(events),
            )  # fmt: skip
    return None


def _is_frozen(events: Sequence[NcclRas]) -> bool | None:
    """Return whether the last two snapshots count the same different numbers; None where there is one snapshot only."""
    snapshots: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for event in events:
        counted = (event.comm, event.op, event.comm_rank, event.count)
        snapshots[str(event.snapshot or event.file)].add(counted)
    *_, before, last = (None, None, *(snapshots[moment] for moment in sorted(snapshots)))
    return None if before is None else before == last


def _fewest(events: Sequence[NcclRas]) -> list[NcclRas]:
    """Return the last completions of the few ranks of a communicator and op that have a smaller number than all others."""
    last: dict[tuple[str, str], dict[int, NcclRas]] = defaultdict(dict)
    for event in events:
        if event.comm_rank is not None and event.count is not None:
            last[(str(event.comm), str(event.op))][event.comm_rank] = event
    for _, ranks in sorted(last.items()):
        low = [e for e in ranks.values() if e.count == min(other.count or 0 for other in ranks.values())]
        if 2 * len(low) < len(ranks):
            return low
    return []
