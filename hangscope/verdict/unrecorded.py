"""Doubts about ranks that may wait in sends or receives that their recorder does not keep, as gloo's."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.causes.case import Case, Match
from hangscope.model.incident import RankRecord
from hangscope.verdict.proof import Proof

LOW, MEDIUM = 0, 1
Doubts = Iterator[tuple[int, str]]


def counts_more(record: RankRecord) -> bool:
    """Return whether a rank's recorder counts operations that it does not keep: it may wait in one of them."""
    queues = [q for q in record.queues.values() if len(q) and q.issued is not None]
    return any(int(q.issued[-1]) > int(q.seq[-1]) for q in queues if q.issued is not None)


def may_wait_unrecorded(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that several ranks without a stack are busy, if their recorders count operations that they do not keep: they may wait for each other."""
    several = (
        match.cause == "stuck_rank" and len(match.culprits) > 1 and not set(match.culprits) & set(case.stacks)
    )
    records = [case.incident.ranks[rank] for rank in match.culprits] if several else []
    if any(queue.issued is not None for record in records for queue in record.queues.values()):
        yield LOW, "they may wait in sends or receives, which gloo's recorder counts and does not keep"
