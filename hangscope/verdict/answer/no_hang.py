"""What a pasted text shows of a job that does not hang: facts that answer the person who asks."""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.model.conclusion import Verdict
from hangscope.verdict.answer import course
from hangscope.verdict.answer.compose import new, observations
from hangscope.verdict.answer.messages import messages
from hangscope.verdict.answer.remarks import remarks
from hangscope.verdict.phrasing import sentence_case

_MOST = 3  # observations


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
    return [sentence_case(f"collect {ended.next.text}")] if slow and ended is not None and ended.next else []
