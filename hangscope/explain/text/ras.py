"""What NCCL's RAS and its Inspector plugin show: ranks that are missing, dead, or behind in launched or completed calls.

Different counts in one snapshot are normal in a running job; two snapshots with the same different counts are a freeze.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.explain.finding import Absent, Extra, Finding, OwnCall, StuckCall, Unseen
from hangscope.explain.statements.statements import Statements
from hangscope.ingest.nccl.ras.snapshot import NcclRas
from hangscope.model.incident import CallKind, Incident


def ras(incident: Incident, statements: Statements) -> Finding | None:
    """Name whom RAS lists as dead or missing, then whom it counts behind."""
    listed: dict[str, list[NcclRas]] = defaultdict(list)
    for event in statements.all(NcclRas):
        listed[event.what].append(event)
    kinds: tuple[tuple[type[Finding], list[NcclRas]], ...] = (
        (Unseen, listed["dead"]),
        (Unseen, listed["missing"]),
        (Absent, listed["behind"]),
        (Extra, listed["ahead"]),
    )
    for kind, events in kinds:
        counted = kind is not Unseen
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
                assumed=any(e.rank is None for e in events), guess=counted, events=tuple(events),
            )  # fmt: skip
    return None
