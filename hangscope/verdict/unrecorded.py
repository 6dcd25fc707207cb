"""Doubts about ranks that may wait in sends or receives that their recorder does not keep, as gloo's."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.causes.case import Case, Match
from hangscope.knowledge.callsite import user_frame
from hangscope.verdict.proof import Proof

LOW, MEDIUM = 0, 1
Doubts = Iterator[tuple[int, str]]


def in_an_unrecorded_call(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that a rank without a stack is busy if it alone counted something else: gloo's recorder keeps no send or receive."""
    odd = {o.ranks for o in case.statements.outlier_lines if o.telling and o.how == "value"}
    stuck = match.cause == "stuck_rank" and case.on_gloo
    if stuck and match.culprits in odd and not set(match.culprits) & set(case.stacks):
        yield (
            MEDIUM,
            "it printed another value than its peers and may wait in a send or receive, which gloo's recorder does not keep",
        )


def may_wait_unrecorded(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that several ranks without a stack are busy, if their recorders count operations that they do not keep: they may wait for each other."""
    several = (
        match.cause == "stuck_rank" and len(match.culprits) > 1 and not set(match.culprits) & set(case.stacks)
    )
    records = [case.incident.ranks[rank] for rank in match.culprits] if several else []
    if any(queue.issued is not None for record in records for queue in record.queues.values()):
        yield LOW, "they may wait in sends or receives, which gloo's recorder counts and does not keep"


def at_one_line(case: Case, match: Match, proof: Proof) -> Doubts:
    """Doubt that several ranks are busy whose innermost frame is one line of the user's: `work.wait()` has no frame of its own."""
    stacks = [case.stacks[rank].stack for rank in match.culprits if rank in case.stacks]
    places = {stack[0] for stack in stacks if stack and stack[0] == user_frame(stack)}
    if match.cause == "stuck_rank" and len(stacks) > 1 == len(places) and case.on_gloo:
        yield (
            LOW,
            "they are at one line and may wait in sends or receives for another rank, which gloo's recorder does not keep",
        )
