"""What reports say of all ranks at once: a monitored barrier, NCCL's desync report, torch's own analyzer, Horovod."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import replace

from hangscope.explain.finding import (
    Absent,
    Candidate,
    Extra,
    Finding,
    OwnCall,
    Stalled,
    StuckCall,
)
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.fingerprints import absent_of
from hangscope.explain.text.sides import stood, two_sides
from hangscope.ingest.job_logs.library_reports import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier, MonitoredBarrierWitness
from hangscope.model.incident import CallKind, Incident
from hangscope.model.regex import regex

Ranks = tuple[int, ...]
_SIZES = regex(r"\[([\d, ]{0,200})\]")
_DIGITS = regex(r"\d{1,18}")
_TYPES = regex(r"'(\w{1,40})'")


def barrier(incident: Incident, statements: Statements) -> Finding | None:
    """Name those that a monitored barrier missed: the absent, or those who are in another call."""
    told = _not_answered([(e.rank, *absent_of(e, statements)) for e in statements.all(MonitoredBarrier)])
    votes = Counter(absent for absent, _ in told if absent)
    most = max(((len(absent), times) for absent, times in votes.items()), default=None)
    missed = [absent for absent, times in votes.items() if (len(absent), times) == most]
    if len(missed) != 1:
        return None  # no report, or as many words against one as against another
    assumed, absent = any(guessed for absent, guessed in told if absent), missed[0]
    others = tuple(r for r in sorted(incident.ranks) if r not in absent)
    stuck = stood(others[0], statements) if others else StuckCall()
    events = tuple(statements.all(MonitoredBarrier, MonitoredBarrierWitness)[:3])
    if len(absent) > len(others):
        # The rank that makes an extra call reports the innocent majority absent.
        why = "they are the majority: the few blocked ranks issued an extra collective"
        aside = (Candidate(absent, Absent.name, why),)
        return Extra(others, stuck, OwnCall(stuck.kind), assumed=assumed, events=events, set_aside=aside)
    # Who raised over calls that differ is gone from every call behind.
    finding = Absent(absent, stuck)
    return replace(finding, assumed=assumed, events=(*finding.events, *events))


def _not_answered(told: list[tuple[int | None, Ranks, bool]]) -> list[tuple[Ranks, bool]]:
    """Return whom reports miss, but for two that miss as many and each other's reporter: both came to a barrier, and neither is odd."""
    by_rank: dict[int | None, list[frozenset[int]]] = defaultdict(list)
    for rank, absent, _ in told:
        by_rank[rank].append(frozenset(absent))
    answered = {
        (rank, absent)
        for rank, absent, _ in told
        for other in absent
        if any(rank in theirs and len(theirs) == len(absent) for theirs in by_rank.get(other, ()))
    }
    return [(absent, guessed) for rank, absent, guessed in told if (rank, absent) not in answered]


def desync(incident: Incident, statements: Statements) -> Finding | None:
    """Read the report of TORCH_NCCL_DESYNC_DEBUG: finished #n but did not join #n+1, or never joined.

    Where all joined and nobody finished, the sentence that calls them lagging is void: the call itself stands still, unless
    the states show that they began different calls.
    """
    reports = statements.all(Desync)
    for event in reports:
        sides = {op: statements.group_ranks.resolve(event, ranks)[0] for op, ranks in event.started.items()}
        if len(sides) > 1 and all(sides.values()):
            kinds = {rank: CallKind(op, "nccl") for op, ranks in sides.items() for rank in ranks}
            ordered = sorted(sides.values(), key=lambda side: (-len(side), side))
            return replace(two_sides(event.seq, ordered, kinds, statements), events=(event,))
    absent: set[int] = set()
    joined: set[int] = set()
    seq: int | None = None
    assumed = False
    for event in reports:
        told: list[tuple[set[int], int | None, Iterable[int]]] = [(absent, None, event.never_joined)]
        told += [(absent, number, ranks) for number, ranks in sorted(event.not_joined.items())]
        told += [(joined, number, ranks) for number, ranks in sorted(event.joined_not_finished.items())]
        for side, number, ranks in told:
            found, guessed = statements.group_ranks.resolve(event, ranks)
            side.update(found)
            assumed = assumed or guessed
            if found and number is not None and (side is absent or seq is None):
                seq = number
    if not absent and not joined:
        return None
    kind = next((CallKind(str(e.op), "nccl") for e in reports if e.op), None)
    of = Absent if absent else Stalled
    return of(
        tuple(sorted(absent)), StuckCall(None, seq, None, kind), waiting=tuple(sorted(joined - absent)), assumed=assumed,
        events=tuple(reports[:3]),
    )  # fmt: skip


def analyzer(incident: Incident, statements: Statements) -> Finding | None:
    """Take what torch's own analyzer printed as a hint: its naming depends on the order in which it read the dumps.

    It compares all with the first rank that it read, which may be the odd one; who is not named made that rank's call.
    """
    for report in [report for report in statements.all(AnalyzerReport) if report.named][:1]:
        waiting = tuple(r for r in report.expected if r not in report.named)
        call = _call(report, report.wanted)
        if report.what == "absent":
            stuck = StuckCall(None, report.seq, None, call)
            return Absent(report.named, stuck, waiting=waiting, guess=True, events=(report,))
        told = zip(report.named, report.found, strict=False)
        calls = {rank: _call(report, text) for rank, text in told if text}
        if report.own_op:
            calls = dict.fromkeys(report.named, CallKind(report.own_op))
        kinds = dict.fromkeys(waiting, call) | calls
        sides: dict[CallKind | None, list[int]] = defaultdict(list)
        for rank in (*waiting, *report.named):
            sides[kinds.get(rank)].append(rank)
        ordered = sorted((tuple(side) for side in sides.values()), key=lambda side: (-len(side), side))
        return replace(two_sides(report.seq, ordered, kinds, statements), guess=True, events=(report,))
    return None


def _call(report: AnalyzerReport, printed: str) -> CallKind:
    """Return the call of a report, with what was printed of it: another name, sizes or element types."""
    op = report.op or ""
    if report.error == "COLLECTIVE_TYPE_MISMATCH" and printed:
        return CallKind(user_op(printed))
    types = _TYPES.findall(
        printed
    )  # of a call found: what is wanted goes out, what it takes in, what it gives out
    if types:
        return CallKind(op, "", (), (), (types[-1],))
    return CallKind(op, "", tuple(tuple(map(int, _DIGITS.findall(size))) for size in _SIZES.findall(printed)))


def horovod(incident: Incident, statements: Statements) -> Finding | None:
    """Name those without whom Horovod cannot reduce: one, or surely the fewer. Nobody where steps are counted behind its last report."""
    stalls = statements.all(HorovodStall)
    last = max(stalls, key=lambda e: (e.file, e.line), default=None)
    if last is None or any(e.file == last.file and e.line > last.line for e in statements.all(Progress)):
        return None
    few = len(last.missing) == 1 or 2 * len(last.missing) < len(incident.ranks)
    if not last.missing or not few or any(e.missing != last.missing for e in stalls):
        return None
    return Absent(last.missing, guess=True, events=(last,))
