"""Whether a pasted text shows a stop although none of its lines proves one: by its reporter's word and the places of its processes.

    It just hangs after the first evaluation. py-spy of both: ...

A sentence alone proves nothing, and one stack is of one moment; who reports a hang and shows where the processes are leaves no doubt of it.
"""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.verdict.answer import comparisons, course, places, stacks

_STACKS = (stacks.stacks, stacks.doings, stacks.unplaced)
_PLACES = (
    *_STACKS,
    places.sides,
    comparisons.announced,
    comparisons.connected,
    comparisons.other_values,
    comparisons.last_lines,
)


def reports_a_stop(case: Case) -> bool:
    """Return whether a reporter says that the job hangs, or took stacks, and the text shows where processes are and nothing that moves on."""
    reported = any(e.prose for e in case.statements.all(Excerpt))
    if not reported or any(read(case) is not None for read in (course.over, course.moving)):
        return False
    shown = _PLACES if says_it_hangs(case.statements) else _STACKS
    return bool(case.stacks) or any(read(case) is not None for read in shown)
