"""What DETAIL's fingerprints show: the calls that ranks say they were in, and from whom they say that they differ.

Each rank gathers the fingerprints of all and compares them with its own in the order of their ranks, and its error names
the first that differs (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp): those before it made the reporter's call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.align.group_ranks import Label, label_of
from hangscope.align.matching import match_key
from hangscope.explain.finding import Candidate, Different, Finding, Late, OwnCall, StuckCall
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.excerpt import traced
from hangscope.explain.text.sides import two_sides
from hangscope.incident import CallKind, Incident, Stack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier


def _kind_of(event: CallFingerprint, statements: Statements) -> CallKind:
    """Return the call that a fingerprint describes, with the stack of the same rank's traceback."""
    stack: Stack = ()
    if event.rank is not None:
        stack = next((e.frames for e in statements.of(event.rank, RankException) if e.frames), ())
    return _kind(event.op, event.shape, event.dtype, stack)


def _kind(op: str, shape: tuple[int, ...] | None, dtype: str | None, stack: Stack = ()) -> CallKind:
    sizes, types = (shape,) if shape is not None else (), (dtype,) if dtype else ()
    return CallKind(op, "", sizes, sizes, types, types, stack=stack)


def _halves(statements: Statements) -> dict[tuple[Label, int], dict[int, CallFingerprint]]:
    """Return the ranks' own halves of DETAIL's fingerprints by group, as far as lines tell it, and seq."""
    halves: dict[tuple[Label, int], dict[int, CallFingerprint]] = defaultdict(dict)
    for event in statements.all(CallFingerprint):
        seq = event.seq
        if event.rank is not None and seq is not None:
            halves[(label_of(event), seq)].setdefault(event.rank, event)
    return halves


def fingerprints(incident: Incident, statements: Statements) -> Finding | None:
    """Compare the ranks' own halves of DETAIL's fingerprints at the first seq where they differ."""
    halves = _halves(statements)
    for label, seq in sorted(halves, key=lambda k: (k[1], not k[0][1], str(k[0][0]))):
        events = halves[(label, seq)]
        sides: dict[object, list[int]] = defaultdict(list)
        for rank, event in sorted(events.items()):
            sides[match_key(_kind_of(event, statements))].append(rank)
        if len(sides) == 1:
            finding = _from_one_side(incident, statements, seq, events)
            if finding is not None:
                return finding
        if len(sides) > 1:
            witnesses = [tuple(r) for r in sides.values()]
            told = [tuple(r) for r in _with_those_alike(statements, witnesses, events)]
            proved = 2 * max(map(len, told)) > len(incident.ranks)
            ordered = sorted(told if proved else witnesses, key=lambda r: (-len(r), r))
            kinds = {r: _kind_of(e, statements) for r, e in events.items()}
            finding = two_sides(incident, statements, seq, ordered, kinds)
            # Of a subgroup the other ranks wait for its members, and not in this call.
            missed = Candidate(
                barrier_absent(statements),
                "absent from a monitored barrier",
                "they are in a call of another group",
            )
            return replace(
                finding,
                events=tuple(events[r] for side in ordered for r in side[:2] if r in events),
                assumed=any(e.rank_assumed for e in events.values()),
                set_aside=() if label[1] else (missed,),
            )
    return None


def _with_those_alike(
    statements: Statements, sides: Sequence[Sequence[int]], events: Mapping[int, CallFingerprint]
) -> list[list[int]]:
    """Return the sides with the ranks that left no half of their own, and that a reporter's line shows to be on its side.

    Of a garbled half only the lengths were compared: who has the length of a call with tensors made none without, and the reverse.
    """
    found: list[set[int]] = [set() for _ in sides]
    for rank, event in events.items():
        own = next(n for n, side in enumerate(sides) if rank in side)
        tensors = {events[r].shape is None for n, side in enumerate(sides) if n != own for r in side}
        if event.peer_group_rank is None or event.aspects == ("sequence number",):
            continue
        if not event.garbled or tensors == {event.shape is not None}:
            found[own].update(statements.group_ranks.resolve(event, range(event.peer_group_rank))[0])
    claimed = Counter(rank for ranks in found for rank in ranks)
    return [
        [*side, *sorted(r for r in ranks - set(events) if claimed[r] == 1)]
        for side, ranks in zip(sides, found, strict=True)
    ]


def _from_one_side(
    incident: Incident, statements: Statements, seq: int, events: Mapping[int, CallFingerprint]
) -> Different | None:
    """Name the ranks from whom the reporters, who all made one call, say that they differ: the fewer of the two."""
    alike, others, assumed = set(events), set[int](), False
    kinds = {rank: _kind_of(event, statements) for rank, event in events.items()}
    for event in events.values():
        if event.peer_group_rank is None or event.aspects == ("sequence number",):
            continue  # sends and receives count on those alone who make them
        named, guessed = statements.group_ranks.resolve(event, (event.peer_group_rank,))
        others.update(named)
        if not event.garbled and event.peer_op:
            other = _kind(event.peer_op, event.peer_shape, event.peer_dtype)
            kinds.update((rank, other) for rank in named if rank not in events)
        assumed = assumed or guessed or event.rank_assumed
        if not event.garbled:  # else only the lengths were compared
            alike.update(statements.group_ranks.resolve(event, range(event.peer_group_rank))[0])
    # Those behind the peer were not compared: where its number alone tells how many ranks there are, there may be one more.
    behind = 1 if max(incident.ranks) in others - traced(incident, statements) else 0
    if not others or others & alike or 2 * len(alike) <= len(incident.ranks) + behind:
        return None
    finding = two_sides(incident, statements, seq, [tuple(sorted(alike)), tuple(sorted(others))], kinds)
    first = min(events)
    stuck = replace(finding.stuck, rank=first, kind=kinds[first])
    return replace(finding, stuck=stuck, events=tuple(events[r] for r in sorted(events)[:4]), assumed=assumed)


def other_calls(
    statements: Statements, ranks: Sequence[int], waiting: int
) -> tuple[StuckCall, OwnCall, CallFingerprint] | None:
    """Return the call in which `waiting` waits and the other one that all of `ranks` were in by their own words, or None."""
    own = [next(iter(statements.of(rank, CallFingerprint)), None) for rank in ranks]
    first = own[0] if own else None
    if first is None or not all(e is not None and e.context == "mismatch" for e in own):
        return None
    if first.garbled or not first.peer_op or first.aspects == ("sequence number",):
        return None
    kind = _kind(first.peer_op, first.peer_shape, first.peer_dtype)
    return StuckCall(None, first.seq, waiting, kind), OwnCall(_kind_of(first, statements), first.seq), first


def barrier_absent(statements: Statements) -> tuple[int, ...]:
    """Return the ranks (global) that any monitored barrier missed."""
    return tuple(sorted({r for e in statements.all(MonitoredBarrier) for r in absent_of(e, statements)[0]}))


def absent_of(event: MonitoredBarrier, statements: Statements) -> tuple[tuple[int, ...], bool]:
    """Return the ranks (global) that one monitored barrier missed, and whether that rests on an assumption."""
    return statements.group_ranks.resolve(event, event.absent)


def late(incident: Incident, statements: Statements) -> Late | None:
    """Name those whom a barrier missed and who later report the very call that the others were in."""
    absent = set(barrier_absent(statements))
    errors = [
        e for e in statements.all(CallFingerprint) if e.context == "barrier_error" and e.rank is not None
    ]
    first = next((e for e in errors if e.rank in absent), None)
    if first is None:
        return None
    on_time = next((e for s in _halves(statements).values() for r, e in s.items() if r not in absent), None)
    own = _kind_of(first, statements)
    if on_time is not None and match_key(_kind_of(on_time, statements)) != match_key(own):
        return None
    waiting = tuple(r for r in incident.ranks if r not in absent)
    stuck = StuckCall(None, first.seq, waiting[0] if waiting else None, own)
    return Late(tuple(sorted(absent)), stuck, OwnCall(own), waiting=waiting, reached=frozenset(waiting))
