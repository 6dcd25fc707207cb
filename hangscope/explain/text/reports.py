"""What checks and monitors report of several ranks at once: the desync report, NCCL's RAS, Horovod, a monitored barrier."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.explain.finding import (
    Absent,
    Candidate,
    Different,
    Extra,
    Finding,
    OwnCall,
    Stalled,
    StuckCall,
    Unseen,
)
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.group_size import others_of, world_size
from hangscope.explain.text.partitions import different, last_call
from hangscope.ingest.job_logs.activity import WaitedFor
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.nccl.ras_json import NcclRas
from hangscope.ingest.torch_logs.reports import Desync
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier, MonitoredBarrierWitness
from hangscope.model.dataclass import dataclass
from hangscope.model.events import Event
from hangscope.model.incident import CallKind, Incident

_STATES = {
    "dead": "died", "missing": "went missing", "behind": "fell behind", "ahead": "ran ahead", "completed": "completed fewest",
}  # fmt: skip
#: What RAS says of ranks, the most certain first, and what that makes of them.
_OF_RAS: tuple[tuple[str, type[Finding]], ...] = (
    ("dead", Unseen), ("missing", Unseen), ("behind", Absent), ("ahead", Extra), ("completed", Absent),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Report:
    """One report: who makes it, which ranks (global) it says what of, those that it `named` as missing or different, and the root that it shows."""

    by: str
    sides: Mapping[str, Sequence[int]]
    named: Sequence[int]
    events: Sequence[Event]
    finding: Finding | None = None


def barrier(incident: Incident, statements: Statements) -> Finding | None:
    """Return the ranks that did not reach a monitored barrier, or the few that issued it in addition."""
    lines = [e for e in statements.all(MonitoredBarrier) if e.absent]
    said = [(e.rank, *statements.group_ranks.resolve(e, e.absent)) for e in lines]
    votes: Counter[tuple[int, ...]] = Counter()
    for rank, absent, _ in said:
        # Two ranks that report each other and as many absent both reached a barrier.
        theirs = [other for peer, other, _ in said if peer in absent]
        if not any(rank in other and len(other) == len(absent) for other in theirs):
            votes[absent] += 1
    most = max(((len(absent), times) for absent, times in votes.items()), default=None)
    missed = [absent for absent, times in votes.items() if (len(absent), times) == most]
    if len(missed) != 1:
        return None  # no report, or a tie
    absent, assumed = missed[0], any(assumed for _, _, assumed in said)
    others = tuple(r for r in sorted(incident.ranks) if r not in absent)
    stuck = last_call(others[0], statements) if others else StuckCall()
    shown = tuple(statements.all(MonitoredBarrier, MonitoredBarrierWitness)[:3])
    if len(absent) > len(others):
        # The rank that issues an extra collective reports the majority absent.
        why = "they are the majority: the few blocked ranks issued an extra collective"
        aside = (Candidate(absent, Absent.name, why),)
        return Extra(others, stuck, OwnCall(stuck.kind), assumed=assumed, events=shown, set_aside=aside)
    return Absent(absent, stuck, assumed=assumed, events=shown)


def desync(incident: Incident, statements: Statements) -> Report | None:
    """Read the report of TORCH_NCCL_DESYNC_DEBUG: who never joined, or finished #n and did not join #n+1.

    Where all joined and nobody finished, nobody is lagging: the collective itself is hung, unless ranks started different ones.
    """
    events = statements.all(Desync)
    sides: dict[str, set[int]] = defaultdict(set)
    absent, joined, assumed = set[int](), set[int](), False
    started: dict[str, tuple[int, ...]] = {}
    for event in events:
        named = f"{event.op} " if event.op else ""
        missed, inside = sorted(event.not_joined.items()), sorted(event.joined_not_finished.items())
        said = [("never joined a collective", absent, event.never_joined)]
        said += [(f"did not join {named}#{n}", absent, ranks) for n, ranks in missed]
        said += [(f"joined {named}#{n} and did not finish it", joined, ranks) for n, ranks in inside]
        for text, side, ranks in said:
            found, guessed = statements.group_ranks.resolve(event, ranks)
            sides[text].update(found)
            side.update(found)
            assumed = assumed or guessed
        for op, ranks in event.started.items():
            started[op] = statements.group_ranks.resolve(event, ranks)[0]
            sides[f"started {op}"].update(started[op])
    if not absent and not joined:
        return None
    call = next((e.op for e in events if e.op), None)
    finding: Finding
    if len(started) > 1 and all(started.values()):
        kinds = {rank: CallKind(op, "nccl") for op, ranks in started.items() for rank in ranks}
        finding = different(events[0].seq, [*started.values()], kinds, statements)
    else:
        of = Absent if absent else Stalled
        numbers = [n for e in events for n in (e.not_joined if absent else e.joined_not_finished)]
        kind = CallKind(call, "nccl") if call else None
        stuck = StuckCall(None, min(numbers, default=None), None, kind)
        finding = of(tuple(sorted(absent)), stuck, waiting=tuple(sorted(joined - absent)), assumed=assumed)
    shown = {text: sorted(ranks) for text, ranks in sides.items() if ranks}
    by = "according to the desync report"
    return Report(by, shown, sorted(absent), events, replace(finding, events=tuple(events[:3])))


def ras(incident: Incident, statements: Statements) -> Report | None:
    """Read which ranks NCCL's RAS lists as dead or missing, counts behind or ahead, or completed fewest (Inspector), in this order.

    Different counts in one snapshot are normal in a running job; two snapshots with the same different counts are a freeze.
    """
    events = statements.all(NcclRas)
    counts = [e for e in events if e.what in ("behind", "ahead")]
    still = _is_frozen(counts)
    for what, of in _OF_RAS:
        listed = [e for e in events if e.what == what]
        listed = _fewest(listed) if what == "completed" else listed
        # A number in a communicator is taken as the global rank if no line maps it.
        ranks = sorted(incident.ranks.keys() & {e.comm_rank if e.rank is None else e.rank for e in listed})
        counted = of is not Unseen
        if counted and still is False:
            return None  # the counts moved between the snapshots
        few = 2 * len(ranks) <= len(incident.ranks) if counted else len(ranks) < len(incident.ranks)
        if not ranks or not few:
            continue
        op = next((e.op for e in listed if e.op), None)
        call, assumed = CallKind(op, "nccl") if op else None, any(e.rank is None for e in listed)
        own, guess = OwnCall(call if of is Extra else None), counted and not still
        stuck, lines = StuckCall(kind=call), tuple(listed)
        finding = of(tuple(ranks), stuck, own, assumed=assumed, guess=guess, events=lines)
        return Report("according to NCCL's RAS", _counted(listed, ranks), ranks, listed, finding)
    return None


def _counted(events: Sequence[NcclRas], ranks: Sequence[int]) -> dict[str, list[int]]:
    """Return what RAS says of ranks: how many operations they and the others launched, or that they are gone."""
    op = next((f" {e.op}" for e in events if e.op), "")
    sides: dict[str, list[int]] = defaultdict(list)
    for e in events:
        number = e.rank if e.rank is not None else e.comm_rank
        place = [f"pid {e.pid}"] if e.pid is not None else []
        place += [f"host {e.host}"] if e.host else []
        text = _STATES[e.what] + (f" ({', '.join(place)})" if place else "")
        text = f"launched {e.count}{op} operations" if e.count is not None else text
        sides[text] += [number] if number is not None and number in ranks else []
        if e.count is not None and e.most is not None:
            sides.setdefault(f"launched {e.most}{op} operations", [])
    return sides


def _is_frozen(events: Sequence[NcclRas]) -> bool | None:
    """Return whether the last two snapshots count the same different numbers; None where there is one snapshot only."""
    snapshots: dict[str, set[tuple[object, ...]]] = defaultdict(set)
    for event in events:
        snapshots[str(event.snapshot or event.file)].add((event.comm, event.op, event.comm_rank, event.count))
    *_, before, last = None, None, *(snapshots[moment] for moment in sorted(snapshots))
    return None if before is None else before == last


def _fewest(events: Sequence[NcclRas]) -> list[NcclRas]:
    """Return the last completions of the few ranks of a communicator and op that have a smaller number than all others."""
    last: dict[tuple[str, str], dict[int, NcclRas]] = defaultdict(dict)
    for event in events:
        if event.comm_rank is not None and event.count is not None:
            last[(str(event.comm), str(event.op))][event.comm_rank] = event
    for _, ranks in sorted(last.items()):
        least = min(e.count or 0 for e in ranks.values())
        low = [e for e in ranks.values() if e.count == least]
        if 2 * len(low) < len(ranks):
            return low
    return []


def awaited(incident: Incident, statements: Statements) -> Report | None:
    """Read which rank others say that they waited for in vain: the one that is named and waited for nobody is the root."""
    lines = [e for e in statements.all(WaitedFor) if e.rank is not None and e.peer_rank in incident.ranks]
    peer_of = {e.rank: e.peer_rank for e in lines if e.rank is not None}
    roots = {peer for peer in peer_of.values() if peer not in peer_of}
    if len(peer_of) < 2 or len(roots) != 1:
        return None
    waiting = tuple(sorted(peer_of))
    finding = Absent(tuple(roots), StuckCall(rank=waiting[0]), waiting=waiting, events=tuple(lines[:2]))
    return Report("the ranks that gave up", {"did not answer": [*roots]}, [*roots], lines, finding)


def horovod(incident: Incident, statements: Statements) -> Report | None:
    """Read which ranks Horovod's tensors wait for. No rank is named if steps follow its last report, or if reports differ."""
    stalls = statements.all(HorovodStall)
    last = max(stalls, key=lambda e: (e.file, e.line), default=None)
    if last is None:
        return None
    ready = {e.ready for e in stalls if e.ready}
    missing = last.missing or (others_of(world_size(statements), ready.pop()) if len(ready) == 1 else ())
    sides: dict[str, list[int]] = defaultdict(list)
    for rank, names in () if missing else next((e.by_rank for e in reversed(stalls) if e.by_rank), ()):
        sides[f"did not submit {', '.join(names[:3])}"].append(rank)
    tensors = ", ".join(last.tensors[:3])
    if missing or not sides:
        sides[f"did not submit {tensors or 'the tensors'}"] = [*missing]
    moved = any(e.file == last.file and e.line > last.line for e in statements.all(Progress))
    few = len(missing) == 1 or 2 * len(missing) < len(incident.ranks)
    sure = missing and few and not moved and all(e.missing == last.missing for e in stalls)
    finding: Finding | None = Absent(tuple(missing), guess=True, events=(last,)) if sure else None
    outliers, most = last.sides[:1], sum(map(len, last.sides))
    if outliers and 3 * len(outliers[0]) < most and not moved and all(e.sides == last.sides for e in stalls):
        finding = Different(outliers[0], guess=True, events=(last,))
    return Report("according to Horovod's stall check", sides, missing, stalls, finding)
