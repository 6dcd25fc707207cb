"""The root as text alone shows it, for jobs that left no usable dump.

What counts, strongest first: calls that ranks themselves say they were in (DETAIL fingerprints); members that a monitored
barrier, the desync report, the watchdog's counters or RAS show absent; the lines at which ranks were blocked; who printed
what last. All ranks are global here; a group-local number that nothing maps is taken as global and the finding says so by
`assumed`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hangscope.explain.facts import Facts
from hangscope.explain.finding import Candidate, Finding
from hangscope.explain.text.excerpt import beyond_the_text, without_a_log
from hangscope.explain.text.fingerprints import absent_of, fingerprints, late
from hangscope.explain.text.output import last_words, progress, silent, sites
from hangscope.explain.text.printed import printed
from hangscope.explain.text.ras import ras
from hangscope.explain.text.witnesses import left_first, no_answer, nothing_under_way
from hangscope.incident import CallKind, Incident
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.wrapper import MonitoredBarrier, MonitoredBarrierWitness


def find_in_text(incident: Incident, facts: Facts) -> Finding:
    """Return what the text shows; form `none` where it names no divergence."""
    by_silence: tuple[Callable[[Incident, Facts], Finding | None], ...] = (
        silent, sites, progress, last_words, printed,
    )  # fmt: skip
    unproved = beyond_the_text(incident, facts) | without_a_log(incident, facts)
    for step in (
        fingerprints,
        late,
        _barrier,
        _desync,
        _analyzer,
        ras,
        left_first,
        no_answer,
        nothing_under_way,
        silent,
        sites,
        progress,
        last_words,
        printed,
    ):
        finding = step(incident, facts)
        if finding is None or (step in by_silence and unproved & set(finding.culprits)):
            continue  # of ranks that the text does not hold, silence proves nothing
        if step in by_silence:
            finding.waiting = tuple(r for r in finding.waiting if r not in unproved)
            finding.explained = min(finding.explained, len(finding.waiting))
        return finding
    return Finding("none")


def _barrier(incident: Incident, facts: Facts) -> Finding | None:
    """Name those that a monitored barrier missed: the absent, or those who are in another call."""
    votes: Counter[tuple[int, ...]] = Counter()
    assumed = False
    for event in facts.all(MonitoredBarrier):
        absent, guessed = absent_of(event, facts)
        if absent:
            votes[absent] += 1
            assumed = assumed or guessed
    if not votes:
        return None
    absent = max(votes, key=lambda a: (len(a), votes[a], a))
    waiting = tuple(r for r in sorted(incident.ranks) if r not in absent)
    where = facts.whereabouts.get(waiting[0]) if waiting else None
    finding = Finding(
        "absent",
        absent,
        waiting=waiting,
        explained=len(waiting),
        waiting_rank=waiting[0] if waiting else None,
        waiting_kind=where.call if where is not None else None,
        assumed=assumed,
        events=facts.all(MonitoredBarrier, MonitoredBarrierWitness)[:3],
    )
    if len(absent) > len(waiting):
        # The rank that makes an extra call reports the innocent majority absent.
        finding.form, finding.culprits, finding.waiting = "extra", waiting, absent
        finding.explained, finding.own_kind = len(absent), finding.waiting_kind
        finding.candidates = [
            Candidate(
                absent,
                "absent",
                "they are the majority: the few who wait made a call that the others do not make",
            )
        ]
    return finding


def _desync(incident: Incident, facts: Facts) -> Finding | None:
    """Read the report of TORCH_NCCL_DESYNC_DEBUG: finished #n but did not join #n+1, or never joined.

    Where all joined and nobody finished, the sentence that calls them lagging is void: the call itself stands still.
    """
    absent: set[int] = set()
    joined: set[int] = set()
    seq: int | None = None
    assumed = False
    for event in facts.all(Desync):
        for number, ranks in ((None, event.never_joined), *sorted(event.not_joined.items())):
            found, guessed = facts.group_ranks.resolve(event, ranks)
            absent.update(found)
            assumed = assumed or guessed
            seq = number if number is not None and found else seq
        for number, ranks in sorted(event.joined_not_finished.items()):
            found, guessed = facts.group_ranks.resolve(event, ranks)
            joined.update(found)
            assumed = assumed or guessed
            seq = number if seq is None else seq
    if not absent and not joined:
        return None
    reports = facts.all(Desync)
    kind = next((CallKind(str(e.op), "nccl") for e in reports if e.op), None)
    waiting = tuple(sorted(joined - absent)) or tuple(r for r in sorted(incident.ranks) if r not in absent)
    if not absent:
        return Finding(
            "stalled",
            (),
            seq=seq,
            waiting=waiting,
            explained=len(waiting),
            waiting_rank=waiting[0] if waiting else None,
            waiting_kind=kind,
            assumed=assumed,
            events=list(reports[:3]),
        )
    if not waiting:
        return None
    return Finding(
        "absent",
        tuple(sorted(absent)),
        seq=seq,
        waiting=waiting,
        explained=len(waiting),
        waiting_rank=waiting[0],
        waiting_kind=kind,
        assumed=assumed,
        events=list(reports[:3]),
    )


def _analyzer(incident: Incident, facts: Facts) -> Finding | None:
    """Take what torch's own analyzer printed as a hint: its naming depends on the order in which it read the dumps."""
    for report in facts.all(AnalyzerReport):
        if not report.named:
            continue
        waiting = tuple(r for r in report.expected if r not in report.named)
        kind = CallKind(report.op or "")
        finding = Finding(
            "absent" if report.what == "absent" else "different",
            report.named,
            seq=report.seq,
            waiting=waiting,
            explained=len(waiting),
            waiting_rank=waiting[0] if waiting else None,
            waiting_kind=kind,
            guess=True,
            events=[report],
        )
        if report.what == "unlike":
            finding.own_kind, finding.own_seq = kind, report.seq
        return finding
    return None
