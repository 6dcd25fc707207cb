"""What DETAIL's fingerprints show: the calls that ranks say they were in, and from whom they say that they differ.

Each rank gathers the fingerprints of all and compares them with its own in the order of their ranks, and its error names
the first that differs (torch/csrc/distributed/c10d/ProcessGroupWrapper.cpp): those before it made the reporter's call.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hangscope.align.matching import match_key
from hangscope.explain.finding import Different
from hangscope.explain.statements.group_ranks import Label, label_of
from hangscope.explain.statements.statements import Statements
from hangscope.explain.text.sides import two_sides
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.ingest.torch_logs.wrapper import CallFingerprint, MonitoredBarrier
from hangscope.model.incident import CallKind, Incident, Stack

Halves = Mapping[int, CallFingerprint]  # the ranks' own, by rank


def _kind_of(event: CallFingerprint, statements: Statements) -> CallKind:
    """Return the call that a fingerprint describes, with the stack of the same rank's traceback."""
    raised = statements.of(event.rank, RankException) if event.rank is not None else []
    stack = next((e.frames for e in raised if e.frames), ())
    return _kind(event.op, event.shape, event.dtype, stack)


def _kind(op: str, shape: tuple[int, ...] | None, dtype: str | None, stack: Stack = ()) -> CallKind:
    sizes, types = (shape,) if shape is not None else (), (dtype,) if dtype else ()
    return CallKind(op, "", sizes, sizes, types, types, stack=stack)


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
            continue
        witnesses = [tuple(side) for side in sides.values()]
        told = [tuple(side) for side in _with_those_alike(statements, witnesses, events)]
        proved = 2 * max(map(len, told)) > len(incident.ranks)
        ordered = sorted(told if proved else witnesses, key=lambda r: (-len(r), r))
        return replace(
            two_sides(seq, ordered, kinds, statements),
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


def absent_of(event: MonitoredBarrier, statements: Statements) -> tuple[tuple[int, ...], bool]:
    """Return the ranks (global) that one monitored barrier missed, and whether that rests on an assumption."""
    return statements.group_ranks.resolve(event, event.absent)
