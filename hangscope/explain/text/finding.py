"""The root as text alone shows it, for jobs that left no usable dump.

What counts, strongest first: calls that ranks themselves say they were in (DETAIL fingerprints); members that a monitored
barrier, the desync report, the watchdog's counters or RAS show absent; the lines at which ranks were blocked; who printed
what last. All ranks are global here; a group-local number that nothing maps is taken as global and the finding says so by
`assumed`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from hangscope.align.group_ranks import Label, label_of
from hangscope.align.matching import match_key
from hangscope.explain.facts import Facts
from hangscope.explain.finding import Candidate, Finding
from hangscope.explain.text.excerpt import beyond_the_text
from hangscope.explain.text.output import last_words, progress, silent, sites
from hangscope.explain.text.printed import printed
from hangscope.explain.text.ras import ras
from hangscope.explain.text.sides import two_sides
from hangscope.explain.text.witnesses import left_first, nothing_under_way
from hangscope.incident import CallKind, Incident, Stack
from hangscope.ingest.torch_logs.analyzer import AnalyzerReport
from hangscope.ingest.torch_logs.desync import Desync
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier, MonitoredBarrierWitness


def find_in_text(incident: Incident, facts: Facts) -> Finding:
    """Return what the text shows; form `none` where it names no divergence."""
    by_silence: tuple[Callable[[Incident, Facts], Finding | None], ...] = (
        silent, sites, progress, last_words, printed,
    )  # fmt: skip
    unproved = beyond_the_text(incident, facts)
    for step in (
        _fingerprints,
        _late,
        _barrier,
        _desync,
        _analyzer,
        ras,
        left_first,
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


def _kind_of(event: CallFingerprint, facts: Facts) -> CallKind:
    """Return the call that a fingerprint describes, with the stack of the same rank's traceback."""
    shape = event.shape
    sizes = (
        (tuple(int(n) for n in shape),)
        if isinstance(shape, (list, tuple)) and all(isinstance(n, int) for n in shape)
        else ()
    )
    dtype = str(event.dtype or "")
    stack: Stack = ()
    if event.rank is not None:
        stack = next((e.frames for e in facts.of(event.rank, RankException) if e.frames), ())
    return CallKind(
        str(event.op),
        "",
        sizes,
        sizes,
        (dtype,) if dtype else (),
        (dtype,) if dtype else (),
        stack=stack,
    )


def _halves(facts: Facts) -> dict[tuple[Label, int], dict[int, CallFingerprint]]:
    """Return the ranks' own halves of DETAIL's fingerprints by group, as far as lines tell it, and seq."""
    halves: dict[tuple[Label, int], dict[int, CallFingerprint]] = defaultdict(dict)
    for event in facts.all(CallFingerprint):
        seq = event.seq
        if event.rank is not None and seq is not None:
            halves[(label_of(event), seq)].setdefault(event.rank, event)
    return halves


def _fingerprints(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the ranks' own halves of DETAIL's fingerprints at the first seq where they differ."""
    halves = _halves(facts)
    for label, seq in sorted(halves, key=lambda k: (k[1], not k[0][1], str(k[0][0]))):
        events = halves[(label, seq)]
        sides: dict[object, list[int]] = defaultdict(list)
        for rank, event in sorted(events.items()):
            sides[match_key(_kind_of(event, facts))].append(rank)
        if len(sides) > 1:
            ordered = sorted((tuple(r) for r in sides.values()), key=lambda r: (-len(r), r))
            finding = two_sides(
                incident, facts, seq, ordered, {r: _kind_of(e, facts) for r, e in events.items()}
            )
            finding.events = [events[r] for side in ordered for r in side[:2]]
            finding.assumed = any(e.rank_assumed for e in events.values())
            if not label[1]:  # a subgroup: the other ranks wait for its members, not in this call
                finding.candidates = [
                    Candidate(
                        _barrier_absent(facts),
                        "absent from a monitored barrier",
                        "they are in a call of another group",
                    )
                ]
            return finding
    return None


def _barrier_absent(facts: Facts) -> tuple[int, ...]:
    return tuple(sorted({r for e in facts.all(MonitoredBarrier) for r in _absent(e, facts)[0]}))


def _absent(event: MonitoredBarrier, facts: Facts) -> tuple[tuple[int, ...], bool]:
    return facts.group_ranks.resolve(event, event.absent)


def _late(incident: Incident, facts: Facts) -> Finding | None:
    """Name those whom a barrier missed and who later report the very call that the others were in."""
    absent = set(_barrier_absent(facts))
    errors = [e for e in facts.all(CallFingerprint) if e.context == "barrier_error" and e.rank is not None]
    first = next((e for e in errors if e.rank in absent), None)
    if first is None:
        return None
    on_time = next((e for s in _halves(facts).values() for r, e in s.items() if r not in absent), None)
    own = _kind_of(first, facts)
    if on_time is not None and match_key(_kind_of(on_time, facts)) != match_key(own):
        return None
    waiting = tuple(r for r in incident.ranks if r not in absent)
    seq = first.seq
    return Finding(
        "late",
        tuple(sorted(absent)),
        seq=seq,
        waiting=waiting,
        explained=len(waiting),
        own_kind=own,
        waiting_kind=own,
        waiting_rank=waiting[0] if waiting else None,
    )


def _barrier(incident: Incident, facts: Facts) -> Finding | None:
    """Name those that a monitored barrier missed: the absent, or those who are in another call."""
    votes: Counter[tuple[int, ...]] = Counter()
    assumed = False
    for event in facts.all(MonitoredBarrier):
        absent, guessed = _absent(event, facts)
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
