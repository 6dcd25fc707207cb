"""The root as text alone shows it, for jobs that left no usable dump.

What counts, strongest first: calls that ranks themselves say they were in (DETAIL fingerprints); members that a monitored
barrier, the desync report or the watchdog's counters show absent; the lines at which ranks were blocked. All ranks are global
here; a group-local number is taken as global where nothing maps it, and the finding says so by `assumed`.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable

from hangscope.align.callsite import is_user, user_frame, user_frames
from hangscope.align.finding import Candidate, Finding
from hangscope.align.matching import match_key
from hangscope.align.facts import Facts, Whereabouts, stack_of
from hangscope.incident import CallKind, Event, Incident, Stack


def find_in_text(incident: Incident, facts: Facts) -> Finding:
    """Return what the text shows; form `none` where it names no divergence."""
    steps: tuple[Callable[[Incident, Facts], Finding | None], ...] = (
        _fingerprints, _barrier, _desync, _watchdog, _sites, _progress,
    )
    for step in steps:
        finding = step(incident, facts)
        if finding is not None:
            return finding
    return Finding("none")


def _kind_of(event: Event, facts: Facts) -> CallKind:
    """Return the call that a fingerprint describes, with the stack of the same rank's traceback."""
    shape = event.fields.get("shape")
    sizes = (tuple(int(n) for n in shape),) if isinstance(shape, (list, tuple)) and all(isinstance(n, int) for n in shape) else ()
    dtype = str(event.fields.get("dtype") or "")
    stack: Stack = ()
    if event.rank is not None:
        stack = next((stack_of(e) for e in facts.of(event.rank, "exception") if e.fields.get("frames")), ())
    return CallKind(str(event.fields.get("op", "")), "", sizes, sizes, (dtype,) if dtype else (), (dtype,) if dtype else (), stack=stack)


def _fingerprints(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the ranks' own halves of DETAIL's fingerprints at the first seq where they differ."""
    halves: dict[int, dict[int, Event]] = defaultdict(dict)
    for event in facts.all("fingerprint"):
        seq = event.fields.get("seq")
        if event.rank is not None and isinstance(seq, int):
            halves[seq].setdefault(event.rank, event)
    for seq in sorted(halves):
        sides: dict[object, list[int]] = defaultdict(list)
        for rank, event in sorted(halves[seq].items()):
            sides[match_key(_kind_of(event, facts))].append(rank)
        if len(sides) > 1:
            ordered = sorted((tuple(r) for r in sides.values()), key=lambda r: (-len(r), r))
            return _two_sides(incident, facts, "different", seq, ordered, {r: _kind_of(e, facts) for r, e in halves[seq].items()})
    late = [e for e in facts.all("fingerprint") if e.fields.get("context") == "barrier_error" and e.rank is not None]
    absent = {r for e in facts.all("monitored_barrier") for r in e.fields.get("absent") or ()}
    if late and absent:
        on_time = next((e for s in halves.values() for r, e in s.items() if r not in absent), None)
        first = next((e for e in late if e.rank in absent), None)
        if first is not None and (on_time is None or match_key(_kind_of(on_time, facts)) == match_key(_kind_of(first, facts))):
            culprits = tuple(sorted(absent))
            waiting = tuple(r for r in incident.ranks if r not in absent)
            seq_value = first.fields.get("seq")
            return Finding("late", culprits, seq=seq_value if isinstance(seq_value, int) else None, waiting=waiting, explained=len(waiting), own_kind=_kind_of(first, facts), waiting_kind=_kind_of(first, facts), waiting_rank=waiting[0] if waiting else None)
    return None


def _two_sides(incident: Incident, facts: Facts, form: str, seq: int | None, sides: list[tuple[int, ...]], kinds: dict[int, CallKind]) -> Finding:
    tie = len(sides) > 1 and len(sides[0]) == len(sides[1])
    majority = sides[0]
    odd = tuple(sorted(r for side in sides[1:] for r in side))
    waiting = tuple(r for r in sorted(incident.ranks) if tie or r not in odd)
    return Finding(
        form, () if tie else odd, seq=seq, waiting=waiting, explained=len(waiting), sides=tuple(sides), tie=tie,
        waiting_rank=majority[0], waiting_kind=kinds.get(majority[0]), own_kind=kinds.get(odd[0]) if odd else None, own_seq=seq,
    )


def _barrier(incident: Incident, facts: Facts) -> Finding | None:
    """Name those that a monitored barrier missed: the absent, or those who are in another call."""
    votes: Counter[tuple[int, ...]] = Counter()
    for event in facts.all("monitored_barrier"):
        absent = tuple(sorted(int(r) for r in event.fields.get("absent") or () if isinstance(r, int)))
        if absent:
            votes[absent] += 1
    if not votes:
        return None
    absent = max(votes, key=lambda a: (len(a), votes[a], a))
    waiting = tuple(r for r in sorted(incident.ranks) if r not in absent)
    where = facts.whereabouts.get(waiting[0]) if waiting else None
    finding = Finding("absent", absent, waiting=waiting, explained=len(waiting), waiting_rank=waiting[0] if waiting else None, waiting_kind=_kind_at(where))
    if len(absent) > len(waiting):
        # The rank that makes an extra call reports the innocent majority absent.
        finding.form, finding.culprits, finding.waiting = "extra", waiting, absent
        finding.explained, finding.own_kind = len(absent), finding.waiting_kind
        finding.candidates = [Candidate(absent, "absent", "they are the majority: the few who wait made a call that the others do not make")]
    return finding


def _desync(incident: Incident, facts: Facts) -> Finding | None:
    """Read the report of TORCH_NCCL_DESYNC_DEBUG: finished #n but did not join #n+1, or never joined."""
    absent: set[int] = set()
    seq: int | None = None
    for event in facts.all("desync"):
        absent.update(int(r) for r in event.fields.get("never_joined") or ())
        for number, ranks in sorted((event.fields.get("not_joined") or {}).items()):
            absent.update(int(r) for r in ranks)
            seq = int(number)
    waiting = tuple(r for r in sorted(incident.ranks) if r not in absent)
    if not absent or not waiting:
        return None
    return Finding("absent", tuple(sorted(absent)), seq=seq, waiting=waiting, explained=len(waiting), waiting_rank=waiting[0], assumed=True)


def _watchdog(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the watchdog's counters per group: fewer enqueued than its peers is absent, another op is different."""
    by_group: dict[str, dict[int, tuple[int, int]]] = defaultdict(dict)
    for event in facts.all("watchdog_status"):
        enqueued, completed = event.fields.get("last_enqueued"), event.fields.get("last_completed")
        if event.rank is not None and isinstance(enqueued, int) and isinstance(completed, int):
            by_group[str(event.fields.get("group_name") or "")][event.rank] = (enqueued, completed)
    timeouts: dict[str, dict[int, Event]] = defaultdict(dict)
    for event in facts.all("watchdog_timeout"):
        if event.rank is not None:
            timeouts[str(event.fields.get("group_name") or "")].setdefault(event.rank, event)
    for group, events in sorted(timeouts.items()):
        calls: dict[tuple[object, ...], list[int]] = defaultdict(list)
        for rank, event in sorted(events.items()):
            calls[(event.fields.get("seq"), event.fields.get("op"), event.fields.get("numel_in"), event.fields.get("numel_out"))].append(rank)
        seqs = {key[0] for key in calls}
        if len(calls) > 1 and len(seqs) == 1:
            sides = sorted((tuple(r) for r in calls.values()), key=lambda r: (-len(r), r))
            kinds = {r: _watchdog_kind(e, facts) for r, e in events.items()}
            finding = _two_sides(incident, facts, "different", _seq(events[sides[0][0]]), sides, kinds)
            return finding
        del group
    waiting = {r for events in timeouts.values() for r in events}
    idle = [r for r in sorted(incident.ranks) if r not in waiting and (facts.of(r, "dump_observed") or any(s.get(r, (0, 1))[0] == s.get(r, (0, 1))[1] for s in by_group.values() if r in s))]
    silent = [r for r in sorted(incident.ranks) if r not in waiting and r not in idle]
    absent = tuple(idle or silent)
    if not waiting or not absent:
        behind = [min(s.items(), key=lambda kv: (kv[1][0], kv[0])) for s in by_group.values() if len({v[0] for v in s.values()}) > 1]
        if not behind:
            return None
        absent = tuple(sorted({r for s in by_group.values() for r, v in s.items() if len({x[0] for x in s.values()}) > 1 and v[0] == min(x[0] for x in s.values())}))
        waiting -= set(absent)
    if not waiting or len(absent) >= len(incident.ranks):
        return None
    first = min(waiting)
    event = next(e for events in timeouts.values() for r, e in sorted(events.items()) if r == first)
    return Finding(
        "absent" if idle else "unseen", absent, seq=_seq(event), waiting=tuple(sorted(waiting)), explained=len(waiting),
        waiting_rank=first, waiting_kind=_watchdog_kind(event, facts),
    )


def _seq(event: Event) -> int | None:
    value = event.fields.get("seq")
    return value if isinstance(value, int) else None


def _watchdog_kind(event: Event, facts: Facts) -> CallKind:
    sizes = tuple((n,) for n in (event.fields.get("numel_in"),) if isinstance(n, int))
    outs = tuple((n,) for n in (event.fields.get("numel_out"),) if isinstance(n, int))
    stack = next((stack_of(e) for e in facts.of(event.rank, "failed_stack")), ()) if event.rank is not None else ()
    return CallKind(str(event.fields.get("op", "")), "nccl", sizes, outs, stack=stack)


def _kind_at(where: Whereabouts | None) -> CallKind | None:
    return CallKind(where.op or "", stack=where.stack) if where is not None else None


def _sites(incident: Incident, facts: Facts) -> Finding | None:
    """Compare the lines of user code at which the ranks were blocked."""
    sites: dict[tuple[object, ...], list[int]] = defaultdict(list)
    for rank, where in sorted(facts.whereabouts.items()):
        frames = tuple((f.file, f.line) for f in user_frames(where.stack) if is_user(f))
        if frames and where.inside:
            sites[(where.op, frames)].append(rank)
    outside = [r for r, w in sorted(facts.whereabouts.items()) if not w.inside and user_frame(w.stack) is not None and w.kind == "stack"]
    inside = sorted(r for ranks in sites.values() for r in ranks)
    if outside and inside:
        kind = _kind_at(facts.whereabouts[inside[0]])
        return Finding("absent", tuple(outside), waiting=tuple(inside), explained=len(inside), waiting_rank=inside[0], waiting_kind=kind)
    if len(sites) < 2:
        return None
    ordered = sorted((tuple(r) for r in sites.values()), key=lambda r: (-len(r), r))
    kinds = {r: k for r, w in facts.whereabouts.items() if (k := _kind_at(w)) is not None}
    return _two_sides(incident, facts, "different", None, ordered, kinds)


def _progress(incident: Incident, facts: Facts) -> Finding | None:
    """Name the ranks whose output counts fewer steps than the others', or says alone that the loop is over."""
    steps: dict[int, int] = {}
    done: list[int] = []
    for event in facts.all("progress"):
        if event.rank is None:
            continue
        if event.fields.get("done"):
            done.append(event.rank)
        step = event.fields.get("step")
        if isinstance(step, int):
            steps[event.rank] = max(step, steps.get(event.rank, -1))
    stuck = sorted({r for e in facts.all("gloo_timeout", "gloo_closed", "exception") if (r := e.rank) is not None})
    if not stuck:
        return None
    left = tuple(sorted(set(done)))
    if left and len(left) * 2 <= len(incident.ranks):
        waiting = tuple(r for r in stuck if r not in left)
        return Finding("different", left, waiting=waiting, explained=len(waiting), waiting_rank=waiting[0] if waiting else None)
    if len(set(steps.values())) == 2 and len(steps) == len(incident.ranks):
        low = tuple(r for r in sorted(steps) if steps[r] == min(steps.values()))
        high = tuple(r for r in sorted(steps) if r not in low)
        if len(low) < len(high):
            return Finding("absent", low, waiting=high, explained=len(high), waiting_rank=high[0], assumed=True)
    return None
