"""Where the stacks of ranks stood: who is in which call, at which line, ranks of one place together."""

from __future__ import annotations

from collections import defaultdict

from hangscope.causes.case import Case
from hangscope.ingest.evidence.stack_owners import OF_NO_RANK, STANDS
from hangscope.knowledge.callsite import user_frame
from hangscope.model.conclusion import Collect
from hangscope.model.rankset import agree, ranks_phrase
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


def of_no_rank(case: Case) -> Observation | None:
    """Read where a process is of which nothing says which rank it is."""
    notes = [note for note in case.incident.notes if note.code == OF_NO_RANK and STANDS in note.message]
    if not notes or case.stacks:
        return None
    place = notes[0].message.partition(STANDS)[2]
    means = "Nothing says which rank this is, and one stack does not tell whether it waits for the others or they for it."
    text = "the stacks of the other ranks at the same time (py-spy dump --native --pid PID), each below a line like `=== rank 3 ===`: whoever is somewhere else is the one to look at"
    return Observation(
        f"the main thread of the process that is shown is at {place}", means, Collect((), "stack", text)
    )
