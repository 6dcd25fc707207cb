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
from hangscope.model.conclusion import Evidence, Source
from hangscope.model.events import Event

_MOST = 8
_NOT_WAITING = frozenset({"crashed_rank", "stuck_rank", "early_exit"})


def corroboration(case: Case, match: Match) -> list[Evidence]:
    """Return quotes of log lines with their stance to a verdict, those of the culprits first."""
    culprits = set(match.culprits)
    found = [
        of_outlier(o) for o in case.statements.outlier_lines if not culprits or culprits.issuperset(o.ranks)
    ]
    if not case.from_text:  # else the finding names its lines itself
        found += [*_of_culprits(case, match), *_of_waiting(case, match)]
    known = {item.source for item in match.evidence}
    by_source: dict[Source | None, Evidence] = {}
    for item in found:
        by_source.setdefault(item.source, item)
    return [item for source, item in by_source.items() if source not in known][:_MOST]


def _of_culprits(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the culprits themselves printed."""
    for rank in match.culprits[:4]:
        for idle in case.statements.of(rank, DumpObserved)[:1]:
            yield quote(idle, f"rank {rank} had nothing overdue when the others timed out: {idle.text}")
        words = last_output(case.statements, rank)
        if words is not None and (words.done or words.leaving):
            yield quote(words, f"rank {rank} printed last: {words.text}")
        for raised in case.statements.of(rank, RankException)[:1]:
            if raised.symptom and match.frame is not None and match.frame in user_frames(raised.frames):
                text = f"rank {rank}'s traceback goes through {match.frame} as well: {raised.text}"
                yield quote(raised, text)
        for waited in case.statements.of(rank, *WAITED)[:1] if match.cause in _NOT_WAITING else ():
            text = f"rank {rank} was still alive when it timed out or lost a peer: {waited.text}"
            yield quote(waited, text, stance="against")


def _of_waiting(case: Case, match: Match) -> Iterator[Evidence]:
    """Yield what the blocked ranks printed, one line of each kind: that they waited, in which collective, and what they lost."""
    yield from received(case)
    ranks = [rank for rank in case.finding.waiting if rank not in match.culprits]
    events = [e for rank in ranks for e in case.statements.of(rank, *WAITED)[:1]]
    first: dict[type[Event], Event] = {}
    for event in events:
        first.setdefault(type(event), event)
    for event in first.values():
        yield quote(event, f"rank {event.rank} was blocked until it timed out or lost a peer: {event.text}")
