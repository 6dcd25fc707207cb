"""Where the stacks of ranks stood: who is in which call, at which line, ranks of one place together."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.knowledge.callsite import user_frame
from hangscope.rankset import agree, ranks_phrase
from hangscope.verdict.answer.observation import Observation

_SHOWN = 4  # places


def stacks(case: Case) -> Observation | None:
    """Read where ranks stood; a single stack says no more than the verdict."""
    at: dict[tuple[str, str], list[int]] = defaultdict(list)
    for rank, where in sorted(case.stacks.items()):
        frame = user_frame(where.stack) or next(iter(where.stack), None)
        place = f"{frame.file.rsplit('/', 1)[-1]}:{frame.line} ({frame.name})" if frame is not None else ""
        at[(f"in {where.op or 'a collective'}" if where.inside else "", place)].append(rank)
    if sum(map(len, at.values())) < 2:
        return None
    parts = [
        f"{ranks_phrase(ranks)} {agree(ranks, 'is', 'are')} {' '.join(filter(None, (call, place and f'at {place}')))}"
        for (call, place), ranks in sorted(at.items(), key=lambda item: (-len(item[1]), item[1]))
        if call or place
    ]
    more = f"; {len(parts) - _SHOWN} more places" if len(parts) > _SHOWN else ""
    return Observation(f"by their stacks {'; '.join(parts[:_SHOWN])}{more}") if parts else None
