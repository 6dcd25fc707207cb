"""Sends and receives that do not pair: of different sizes, or one of them was never posted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from hangscope.align.matching import numel
from hangscope.align.p2p import PairInstance
from hangscope.align.program import Programs
from hangscope.align.waitgraph import Root
from hangscope.explain.aligned import Aligned
from hangscope.explain.finding import Change, OwnCall, Unpaired
from hangscope.knowledge.callsite import user_frame

EXAMINED = 128  # pairs, and ranks of a cycle whose programs are examined
LAST_CALLS = 48  # of a rank's program, among which a deviation is looked for


def unequal_pair(aligned: Aligned) -> Unpaired | None:
    """Return the finding of a send and a receive of different sizes; the one that leaves its rank's pattern deviates."""
    roots = aligned.roots("call")
    pairs = [(node, root) for root in roots for node in root.nodes if isinstance(node, PairInstance)]
    found = (_unequal(aligned, *place) for place in pairs[:EXAMINED])
    return next((finding for finding in found if finding is not None), None)


def _unequal(aligned: Aligned, node: PairInstance, root: Root) -> Unpaired | None:
    pair, kinds, programs = aligned.graph.pairs[node], aligned.incident.kinds, aligned.programs
    assert pair.send is not None and pair.recv is not None  # else the root were who has not posted its half
    sent, received = kinds[pair.send.kind], kinds[pair.recv.kind]
    equal = numel(sent.input_sizes) == numel(received.input_sizes)
    if equal and sent.input_dtypes == received.input_dtypes:
        return None
    calls = (pair.send, pair.recv)
    rows = {call.rank: programs.row_of(call.rank, call.order) for call in calls}
    culprits = [rank for rank, row in rows.items() if programs.keeps_pattern(rank, row) is False]
    named = (culprits[0],) if len(culprits) == 1 else ()
    own, other = (pair.recv, pair.send) if named == (pair.recv.rank,) else (pair.send, pair.recv)
    stuck = replace(aligned.stuck_in(node, named), kind=kinds[other.kind], rank=other.rank)
    finding = Unpaired(named, stuck, OwnCall(kinds[own.kind], own.seq), tie=not named)
    return aligned.reached_by(finding)


def unpaired(aligned: Aligned, root: Root) -> Unpaired | None:
    """Return the finding of the send or receive at which a cycle started, with the rank at fault.

    That is the rank whose own program shows that it left one out or turned to another peer, else the end that has not posted its
    half (assumed).
    """
    pairs = sorted((n for n in root.nodes if isinstance(n, PairInstance)), key=aligned.when)
    # A dump that is older than its peers' lacks what its rank did since.
    lacking = {node: rank for node in pairs if (rank := aligned.missing_half(node)) is not None}
    missing = {node: rank for node, rank in lacking.items() if rank not in aligned.early}
    inside = [*missing.values(), *(r for n in (*lacking, *pairs) for r, _ in aligned.graph.calls_of(n))]
    strayed = _strayed(aligned.programs, list(dict.fromkeys(inside))[:EXAMINED])
    if len(strayed) == 1:
        ((rank, row),) = strayed.items()
        return _by_its_program(aligned, next(iter(lacking), pairs[0]), rank, row)
    # A rank that is blocked in an unpaired call itself is only a link of the chain.
    opened = aligned.graph.open_calls
    free = [
        node for node, rank in missing.items() if not (rank in opened and opened[rank][0].node in lacking)
    ]
    for node in free or missing:
        return Unpaired((missing[node],), aligned.stuck_in(node, (missing[node],)), assumed=True)
    return None


def _by_its_program(aligned: Aligned, node: PairInstance, rank: int, row: int) -> Unpaired:
    _, seq, kind, _ = aligned.programs.call(rank, row)
    wanted = tuple(aligned.programs.call(rank, at)[2] for at in aligned.programs.wanted(rank, row))
    return Unpaired((rank,), aligned.stuck_in(node, (rank,)), OwnCall(kind, seq), Change(skipped=wanted))


def _strayed(programs: Programs, ranks: Sequence[int]) -> dict[int, int]:
    """Return by rank the last row at which it alone left the pattern of its own program.

    What several of them do alike, such as the beginning of an epoch, is new to each and nobody's fault.
    """
    breaks: dict[int, dict[tuple[object, ...], int]] = {}
    for rank in ranks:
        length = len(programs.of(rank).tokens)
        rows = range(max(1, length - LAST_CALLS), length)
        left = (row for row in rows if programs.keeps_pattern(rank, row) is False)
        breaks[rank] = {(_call(programs, rank, row - 1), _call(programs, rank, row)): row for row in left}
    steps = Counter(step for own in breaks.values() for step in own)
    alone = {r: [row for step, row in own.items() if steps[step] == 1] for r, own in breaks.items()}
    return {rank: max(rows) for rank, rows in alone.items() if rows}


def _call(programs: Programs, rank: int, row: int) -> tuple[object, ...]:
    """Return what identifies a call without its peers, which differ from stage to stage."""
    kind = programs.call(rank, row)[2]
    return kind.op, user_frame(kind.stack)
