"""What reports say of all ranks at once: a monitored barrier, NCCL's desync report, torch's own analyzer, Horovod."""

from __future__ import annotations

from collections import Counter, defaultdict
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
)
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.fingerprints import absent_of, other_calls
from hangscope.explain.text.output import apart
from hangscope.explain.text.sides import two_sides
from hangscope.incident import CallKind, Incident
from hangscope.ingest.job_logs.horovod import HorovodStall
from hangscope.ingest.job_logs.progress import Progress
from hangscope.ingest.recorder.values import user_op
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier, MonitoredBarrierWitness
from hangscope.regex import regex

_SIZES = regex(r"\[([\d, ]{0,200})\]")
_DIGITS = regex(r"\d{1,18}")
_TYPES = regex(r"'(\w{1,40})'")


def barrier(incident: Incident, statements: Statements) -> Finding | None:
    """Name those that a monitored barrier missed: the absent, or those who are in another call."""
    votes: Counter[tuple[int, ...]] = Counter()
    assumed = False
    for event in statements.all(MonitoredBarrier):
        absent, guessed = absent_of(event, statements)
        if absent:
            votes[absent] += 1
            assumed = assumed or guessed
    if not votes:
        return None
    absent = max(votes, key=lambda a: (len(a), votes[a], a))
    waiting = tuple(r for r in sorted(incident.ranks) if r not in absent)
    where = statements.whereabouts.get(waiting[0]) if waiting else None
    call = where.call if where is not None else None
    stuck = StuckCall(rank=waiting[0] if waiting else None, kind=call)
    events = tuple(statements.all(MonitoredBarrier, MonitoredBarrierWitness)[:3])
    if len(absent) > len(waiting):
        # The rank that makes an extra call reports the innocent majority absent.
        why = "they are the majority: the few who wait made a call that the others do not make"
        return Extra(
            waiting, stuck, OwnCall(call), waiting=absent, reached=frozenset(absent), assumed=assumed, events=events,
            set_aside=(Candidate(absent, Absent.name, why),),
        )  # fmt: skip
    # Who raised over calls that differ is gone from every call behind.
    if waiting and (told := other_calls(statements, absent, waiting[0])) is not None:
        differs, own, raised = told
        return Different(
            absent, differs, own, waiting=waiting, reached=frozenset(waiting), assumed=assumed,
            events=(raised, *events),
        )  # fmt: skip
    return Absent(absent, stuck, waiting=waiting, reached=frozenset(waiting), assumed=assumed, events=events)


def desync(incident: Incident, statements: Statements) -> Finding | None:
    """Read the report of TORCH_NCCL_DESYNC_DEBUG: finished #n but did not join #n+1, or never joined.

    Where all joined and nobody finished, the sentence that calls them lagging is void: the call itself stands still.
    """
    absent: set[int] = set()
    joined: set[int] = set()
    seq: int | None = None
    assumed = False
    for event in statements.all(Desync):
        for number, ranks in ((None, event.never_joined), *sorted(event.not_joined.items())):
            found, guessed = statements.group_ranks.resolve(event, ranks)
            absent.update(found)
            assumed = assumed or guessed
            seq = number if number is not None and found else seq
        for number, ranks in sorted(event.joined_not_finished.items()):
            found, guessed = statements.group_ranks.resolve(event, ranks)
            joined.update(found)
            assumed = assumed or guessed
            seq = number if seq is None else seq
    if not absent and not joined:
        return None
    reports = statements.all(Desync)
    kind = next((CallKind(str(e.op), "nccl") for e in reports if e.op), None)
    waiting = tuple(sorted(joined - absent)) or tuple(r for r in sorted(incident.ranks) if r not in absent)
    stuck = StuckCall(None, seq, waiting[0] if waiting else None, kind)
    of = Absent if absent else Stalled
    return of(
        tuple(sorted(absent)), stuck, waiting=waiting, reached=frozenset(waiting), assumed=assumed,
        events=tuple(reports[:3]),
    )  # fmt: skip


def analyzer(incident: Incident, statements: Statements) -> Finding | None:
    """Take what torch's own analyzer printed as a hint: its naming depends on the order in which it read the dumps.

    It compares all with the first rank that it read, which may be the odd one; who is not named made that rank's call.
    """
    for report in statements.all(AnalyzerReport):
        if not report.named:
            continue
        waiting = tuple(r for r in report.expected if r not in report.named)
        call = _call(report, report.wanted)
        if report.what == "absent":
            stuck = StuckCall(None, report.seq, waiting[0] if waiting else None, call)
            return Absent(
                report.named, stuck, waiting=waiting, reached=frozenset(waiting), guess=True, events=(report,)
            )
        calls = {
            rank: _call(report, text) for rank, text in zip(report.named, report.found, strict=False) if text
        }
        if report.own_op:
            calls = dict.fromkeys(report.named, CallKind(report.own_op))
        sides: dict[CallKind | None, list[int]] = defaultdict(list)
        for rank in (*waiting, *report.named):
            sides[calls.get(rank) if rank in report.named else call].append(rank)
        ordered = sorted((tuple(side) for side in sides.values()), key=lambda side: (-len(side), side))
        kinds = dict.fromkeys(waiting, call) | calls
        return replace(
            two_sides(incident, statements, report.seq, ordered, kinds), guess=True, events=(report,)
        )
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
    named = last.missing
    if (
        not named
        or any(e.missing != named for e in stalls)
        or (len(named) > 1 and 2 * len(named) >= len(incident.ranks))
    ):
        return None
    waiting = tuple(r for r in sorted(incident.ranks) if r not in named)
    return apart(Absent, named, waiting, (last,), guess=True)
