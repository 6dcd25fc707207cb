"""What the logs add to a verdict that rests on dumps or stacks: which lines agree with it, and which do not."""

from __future__ import annotations

from collections.abc import Iterator

from hangscope.causes.case import Case, Match, of_outlier, quote
from hangscope.causes.mismatch import received
from hangscope.explain.statements.statements import WAITED
from hangscope.explain.text.steps import last_output
from hangscope.ingest.torch_logs.c10d import DumpObserved
from hangscope.ingest.torch_logs.traceback import RankException
from hangscope.knowledge.callsite import user_frames
from hangscope.model.conclusion import Evidence
from hangscope.model.incident import Event

_MOST = 8
_NOT_WAITING = frozenset({"crashed_rank", "stuck_rank", "early_exit"})


def corroboration(case: Case, match: Match) -> list[Evidence]:
    """Return quotes of log lines with their stance to a verdict, those of the culprits first."""
    odd = (
        o for o in case.statements.outlier_lines if not match.culprits or set(o.ranks) <= set(match.culprits)
    )
    found = [of_outlier(line) for line in odd]
    if not case.from_text:  # else the finding names its lines itself
        found += [*_of_culprits(case, match), *_of_waiting(case, match)]
    known = {item.source for item in match.evidence}
    items: list[Evidence] = []
    for item in found:
        if item.source not in known:
            known.add(item.source)
            items.append(item)
    return items[:_MOST]


def _of_culprits(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the culprits themselves printed."""
    statements = case.statements
    for rank in match.culprits[:4]:
        for idle in statements.of(rank, DumpObserved)[:1]:
            yield quote(idle, f"rank {rank} had nothing overdue when the others timed out: {idle.text}")
        words = last_output(statements, rank)
        if words is not None and (words.done or words.leaving):
            yield quote(words, f"rank {rank} printed last: {words.text}")
        for raised in statements.of(rank, RankException)[:1]:
            if raised.symptom and match.frame is not None and match.frame in user_frames(raised.frames):
                yield quote(
                    raised, f"rank {rank}'s traceback goes through {match.frame} as well: {raised.text}"
                )
        for waited in statements.of(rank, *WAITED)[:1] if match.cause in _NOT_WAITING else ():
            lived = f"rank {rank} was still alive when it timed out or lost a peer: {waited.text}"
            yield quote(waited, lived, stance="against")


def _of_waiting(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the ranks that wait printed: that they waited, in which call, and what they lost."""
    yield from received(case)
    seen: set[type[Event]] = set()
    for rank in case.finding.waiting:
        for event in case.statements.of(rank, *WAITED)[:1] if rank not in match.culprits else ():
            if type(event) not in seen:
                seen.add(type(event))
                yield quote(event, f"rank {rank} was blocked until it timed out or lost a peer: {event.text}")
