"""Sends that both sides posted and that do not complete, as text."""

from __future__ import annotations

from collections.abc import Sequence

from hangscope.align.p2p import Half, Pair
from hangscope.causes.case import Case, at
from hangscope.explain.finding import StuckCall
from hangscope.model.conclusion import Evidence
from hangscope.model.rankset import ranks_phrase

_LISTED = 8  # pairs


def met(case: Case) -> list[Pair]:
    """Return the pairs that do not complete although both sides, which wait for nothing before, have posted them, the verdict's own first."""
    stuck = case.finding.stuck.pair
    first = {rank: calls[0].node for rank, calls in case.graph.open_calls.items()}
    stalled = (pair for pair in case.graph.pairs.values() if pair.stalls)
    found = [p for p in stalled if first[p.key.source] == first[p.key.destination] == p.key]
    if not found and stuck is not None and stuck.stalls:
        return [stuck]
    return sorted(
        found, key=lambda pair: (pair is not stuck, not all(half.created for half in _halves(pair)))
    )


def paired(pairs: Sequence[Pair]) -> str:
    """Return which sends do not complete."""
    if len(pairs) == 1:
        key = pairs[0].key
        return f"the send from rank {key.source} to rank {key.destination}, posted on both sides, does not complete"
    ends = (ranks_phrase({getattr(pair.key, end) for pair in pairs}) for end in ("source", "destination"))
    return f"sends from {' to '.join(ends)}, posted on both sides, do not complete"


def posted(case: Case) -> list[Evidence]:
    """Return of the first pairs that both sides are there, with the places that posted them."""
    found = []
    for pair in met(case)[:_LISTED]:
        sides = []
        for half in _halves(pair):
            kind = case.incident.kinds[half.kind]
            sides.append(f"rank {half.rank} posted {kind.op} seq {half.seq}{at(case.frame_of(kind))}")
        text = f"{' and '.join(sides)}: one pair, and neither completes"
        found.append(case.recorded(pair.key.source, text))
    return found


def far_side(case: Case) -> StuckCall:
    """Return the call that blocks; of a pair, the side of the other rank than the one that is quoted as blocked."""
    stuck = case.finding.stuck
    sides = _halves(stuck.pair) if stuck.pair is not None else []
    others = [half for half in sides if half.rank != stuck.rank]
    kinds = case.incident.kinds
    return next((StuckCall(stuck.view, h.seq, h.rank, kinds[h.kind]) for h in others), stuck)


def _halves(pair: Pair) -> list[Half]:
    return [half for half in (pair.send, pair.recv) if half is not None]
