"""What a pasted text shows of a job that does not hang, and whether it shows a stop although none of its lines proves one.

    It just hangs after the first evaluation. py-spy of both: ...

A sentence alone proves nothing, and one stack is of one moment; who reports a hang and shows where the processes are leaves no doubt of it.
"""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.explain.text.stop import says_it_hangs
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.model.conclusion import Verdict
from hangscope.verdict.answer import comparisons, course, places, stacks
from hangscope.verdict.answer.compose import new, observations
from hangscope.verdict.answer.lines import messages
from hangscope.verdict.answer.remarks import remarks
from hangscope.verdict.phrasing import sentence_case

_MOST = 3  # observations
_STACKS = (stacks.stacks, stacks.doings, stacks.unplaced)
_COMPARED = (comparisons.announced, comparisons.connected, comparisons.other_values, comparisons.last_lines)
_PLACES = (*_STACKS, places.sides, *_COMPARED)


def why_no_hang(case: Case, verdict: Verdict) -> list[str]:
    """Return what a text shows of a job that does not hang, the most telling first; `verdict` is that nothing is known."""
    harmless = [s for entry, s in messages(case) if entry.benign]
    seen = [s.shows for s in (*observations(case, course.over(case)), *harmless)]
    facts = [seen[0], *new(seen[1:], seen[0])][:_MOST] if seen else []
    facts += [quiet] if (quiet := course.silence(case)) else []
    facts += [far] if (far := course.went_on(case)) else []
    return [sentence_case(fact) for fact in (*facts, *remarks(case, verdict))]


def to_collect(case: Case) -> list[str]:
    """Return what would show why a job is slow that does not hang."""
    slow = any(e.slow or e.pace for e in case.statements.all(Excerpt))
    ended = course.over(case) or course.moving(case)
    return [sentence_case(f"collect {ended.wanted}")] if slow and ended is not None and ended.wanted else []


def reports_a_stop(case: Case) -> bool:
    """Return whether a reporter says that the job hangs, or took stacks, and the text shows where processes are and nothing that moves on."""
    reported = any(e.prose for e in case.statements.all(Excerpt))
    if not reported or any(read(case) is not None for read in (course.over, course.moving)):
        return False
    shown = _PLACES if says_it_hangs(case.statements) else _STACKS
    return bool(case.stacks) or any(read(case) is not None for read in shown)
