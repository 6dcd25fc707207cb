"""What NCCL's RAS and its Inspector plugin show: ranks that are missing, dead, or behind in launched or completed calls.

Different counts in one snapshot are normal in a running job; two snapshots with the same different counts are a freeze.
"""

from __future__ import annotations

from collections import defaultdict

from hangscope.explain.facts import Facts
from hangscope.explain.finding import Finding
from hangscope.incident import CallKind, Event, Incident

#: (communicator, op, rank in it, count)
_Count = tuple[str, str, int, int]


def ras(incident: Incident, facts: Facts) -> Finding | None:
    """Name whom RAS lists as dead or missing, then whom it counts behind, then who completed fewest."""
    events = facts.all("nccl_ras")
    for what in ("dead", "missing"):
        named = [e for e in events if e.fields.get("what") == what]
        ranks, assumed = _ranks(named, incident)
        if ranks and len(ranks) < len(incident.ranks):
            return _finding(incident, "unseen", ranks, named, assumed)
    behind = [e for e in events if e.fields.get("what") == "behind"]
    ahead = [e for e in events if e.fields.get("what") == "ahead"]
    still = is_frozen(events)
    if still is False:
        return None  # the counts moved between the snapshots
    for form, found in (("absent", behind), ("extra", ahead)):
        ranks, assumed = _ranks(found, incident)
        if ranks and len(ranks) * 2 <= len(incident.ranks):
            finding = _finding(incident, form, ranks, found, assumed)
            finding.guess = still is None
            return finding
    return _completed(incident, [e for e in events if e.fields.get("what") == "completed"])


def is_frozen(events: list[Event]) -> bool | None:
    """Return whether the last two snapshots count the same different numbers; None where there is one snapshot only."""
    snapshots: dict[tuple[str, str], set[_Count]] = defaultdict(set)
    for event in events:
        if event.fields.get("what") in ("behind", "ahead"):
            moment = (str(event.fields.get("snapshot") or ""), event.file)
            rank = event.fields.get("comm_rank")
            count = event.fields.get("count")
            snapshots[moment].add(
                (
                    str(event.fields.get("comm")),
                    str(event.fields.get("op")),
                    rank if isinstance(rank, int) else -1,
                    count if isinstance(count, int) else -1,
                )
            )
    moments = sorted(snapshots)
    distinct = {stamp or file for stamp, file in moments}
    return snapshots[moments[-1]] == snapshots[moments[-2]] if len(distinct) > 1 else None


def _ranks(events: list[Event], incident: Incident) -> tuple[tuple[int, ...], bool]:
    """Return global ranks and whether the rank in a communicator was taken for the rank in the job."""
    ranks: set[int] = set()
    assumed = False
    for event in events:
        local = event.fields.get("comm_rank")
        if event.rank is not None:
            ranks.add(event.rank)
        elif isinstance(local, int) and local in incident.ranks:
            ranks.add(local)
            assumed = True
    return tuple(sorted(ranks)), assumed


def _finding(
    incident: Incident, form: str, ranks: tuple[int, ...], events: list[Event], assumed: bool
) -> Finding:
    waiting = tuple(r for r in sorted(incident.ranks) if r not in ranks)
    op = next((str(e.fields["op"]) for e in events if e.fields.get("op")), None)
    kind = CallKind(op, "nccl") if op else None
    return Finding(
        form,
        ranks,
        waiting=waiting,
        explained=len(waiting),
        waiting_rank=waiting[0] if waiting else None,
        waiting_kind=kind,
        own_kind=kind if form == "extra" else None,
        assumed=assumed,
        events=events,
    )


def _completed(incident: Incident, events: list[Event]) -> Finding | None:
    """Name the ranks whose last completed call of one communicator and op has a smaller number than all others'."""
    last: dict[tuple[str, str], dict[int, tuple[int, Event]]] = defaultdict(dict)
    for event in events:
        local, count = event.fields.get("comm_rank"), event.fields.get("count")
        if isinstance(local, int) and isinstance(count, int) and event.fields.get("peer") is None:
            last[(str(event.fields.get("comm")), str(event.fields.get("op")))][local] = (count, event)
    for (_, _), ranks in sorted(last.items()):
        counts = {count for count, _ in ranks.values()}
        low = [event for count, event in ranks.values() if count == min(counts)]
        if len(counts) > 1 and len(low) * 2 < len(ranks):
            named, assumed = _ranks(low, incident)
            if named:
                finding = _finding(incident, "absent", named, low, assumed)
                finding.guess = True
                return finding
    return None
