"""What DETAIL's fingerprints show: the calls that ranks say they were in, and from whom they say that they differ.

Each rank gathers the fingerprints of all and compares them with its own in the order of their ranks, and its error names
the first that differs (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp): those before it made the reporter's call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.align.matching import match_key
from hangscope.explain.finding import Different, Late, OwnCall, StuckCall
from hangscope.explain.statements.group_ranks import Label, label_of
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.excerpt import traced
from hangscope.explain.text.sides import two_sides
from hangscope.incident import CallKind, Incident, Stack
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier

Halves = Mapping[int, CallFingerprint]  # the ranks' own, by rank


def _kind_of(event: CallFingerprint, statements: Statements) -> CallKind:
    """Return the call that a fingerprint describes, with the stack of the same rank's traceback."""
    raised = statements.of(event.rank, RankException) if event.rank is not None else []
    stack = next((e.frames for e in raised if e.frames), ())
    return _kind(event.op, event.shape, event.dtype, stack)


def _kind(op: str, shape: tuple[int, ...] | None, dtype: str | None, stack: Stack = ()) -> CallKind:
    sizes, types = (shape,) if shape is not None else (), (dtype,) if dtype else ()
    return CallKind(op, "", sizes, sizes, types, types, stack=stack)


def _peer_kind(event: CallFingerprint) -> CallKind | None:
    """Return the call of the peer from which a rank says that it differs; None where only the lengths were compared."""
    if event.garbled or not event.peer_op:
        return None
    return _kind(event.peer_op, event.peer_shape, event.peer_dtype)


def _peer(event: CallFingerprint) -> int | None:
    """Return the peer (group-local) that is in another call; sends and receives alone make ranks count otherwise."""
    return event.peer_group_rank if event.aspects != ("sequence number",) else None


def fingerprints(incident: Incident, statements: Statements) -> Different | None:
    """Compare the ranks' own halves of DETAIL's fingerprints at the first seq where they differ."""
    halves: dict[tuple[Label, int], dict[int, CallFingerprint]] = defaultdict(dict)
    for event in statements.all(CallFingerprint):
        if event.rank is not None and event.seq is not None:
            halves[(label_of(event), event.seq)].setdefault(event.rank, event)
    for label, seq in sorted(halves, key=lambda k: (k[1], not k[0][1], str(k[0][0]))):
        events = halves[(label, seq)]
        kinds = {rank: _kind_of(event, statements) for rank, event in events.items()}
        sides: dict[object, list[int]] = defaultdict(list)
        for rank in sorted(events):
            sides[match_key(kinds[rank])].append(rank)
        if len(sides) == 1:
            finding = _from_one_side(incident, statements, seq, events, kinds)
            if finding is not None:
                return finding
            continue
        witnesses = [tuple(side) for side in sides.values()]
        told = [tuple(side) for side in _with_those_alike(statements, witnesses, events)]
        proved = 2 * max(map(len, told)) > len(incident.ranks)
        ordered = sorted(told if proved else witnesses, key=lambda r: (-len(r), r))
        return replace(
            two_sides(seq, ordered, kinds),
            events=tuple(events[r] for side in ordered for r in side[:2] if r in events),
            assumed=any(e.rank_assumed for e in events.values()),
        )
    return None


def _with_those_alike(
    statements: Statements, sides: Sequence[Sequence[int]], events: Halves
) -> list[list[int]]:
    """Return the sides with the ranks that left no half of their own, and that a reporter's line shows to be on its side.

    Of a garbled half only the lengths were compared: who has the length of a call with tensors made none without, and the reverse.
    """
    found: list[set[int]] = [set() for _ in sides]
    for rank, event in events.items():
        own = next(n for n, side in enumerate(sides) if rank in side)
        tensors = {events[r].shape is None for n, side in enumerate(sides) if n != own for r in side}
        if not event.garbled or tensors == {event.shape is not None}:
            found[own].update(statements.group_ranks.resolve(event, range(_peer(event) or 0))[0])
    claimed = Counter(rank for ranks in found for rank in ranks)
    return [
        [*side, *sorted(r for r in ranks - set(events) if claimed[r] == 1)]
        for side, ranks in zip(sides, found, strict=True)
    ]


def _from_one_side(
    incident: Incident, statements: Statements, seq: int, events: Halves, kinds: Mapping[int, CallKind]
) -> Different | None:
    """Name the ranks from whom the reporters, who all made one call, say that they differ: the fewer of the two."""
    alike, others, assumed = set(events), dict[int, CallKind | None](), False
    for event in events.values():
        peer = _peer(event)
        if peer is None:
            continue
        named, guessed = statements.group_ranks.resolve(event, (peer,))
        others.update({rank: others.get(rank) or _peer_kind(event) for rank in named})
        assumed = assumed or guessed or event.rank_assumed
        if not event.garbled:  # else only the lengths were compared
            alike.update(statements.group_ranks.resolve(event, range(peer))[0])
    # Those behind the peer were not compared: where its number alone tells how many ranks there are, there may be one more.
    behind = max(incident.ranks) in others.keys() - traced(incident, statements)
    if not others or others.keys() & alike or 2 * len(alike) <= len(incident.ranks) + behind:
        return None
    kinds = {**{rank: kind for rank, kind in others.items() if kind is not None}, **kinds}
    finding = two_sides(seq, [tuple(sorted(alike)), tuple(sorted(others))], kinds)
    stuck = replace(finding.stuck, rank=min(events), kind=kinds[min(events)])
    return replace(finding, stuck=stuck, events=tuple(events[r] for r in sorted(events)[:4]), assumed=assumed)


def in_another_call(statements: Statements, ranks: Sequence[int], waiting: int) -> Different | None:
    """Return the finding that all of `ranks` were in another call than `waiting` waits in, by their own words, or None."""
    own = statements.by_rank(CallFingerprint)
    first = own.get(ranks[0])
    kind = _peer_kind(first) if first is not None and _peer(first) is not None else None
    if first is None or kind is None or not all(r in own and own[r].context == "mismatch" for r in ranks):
        return None
    stuck = StuckCall(None, first.seq, waiting, kind)
    return Different(tuple(ranks), stuck, OwnCall(_kind_of(first, statements), first.seq), events=(first,))


def absent_of(event: MonitoredBarrier, statements: Statements) -> tuple[tuple[int, ...], bool]:
    """Return the ranks (global) that one monitored barrier missed, and whether that rests on an assumption."""
    return statements.group_ranks.resolve(event, event.absent)


def late(incident: Incident, statements: Statements) -> Late | None:
    """Name those whom a barrier missed and who later report the very call that the others were in."""
    absent = {r for e in statements.all(MonitoredBarrier) for r in absent_of(e, statements)[0]}
    errors = statements.by_rank(CallFingerprint, lambda e: e.context == "barrier_error" and e.rank in absent)
    for first in [*errors.values()][:1]:
        own = _kind_of(first, statements)
        return Late(tuple(sorted(absent)), StuckCall(None, first.seq, None, own), OwnCall(own))
    return None
