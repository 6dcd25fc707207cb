"""Whether a pasted text shows a stop although none of its lines proves one: by its reporter's word and the places of its processes.

    It just hangs after the first evaluation. py-spy of both: ...

A sentence alone proves nothing, and one stack is of one moment; who reports a hang and shows where the processes are leaves no doubt of it.
"""

from __future__ import annotations

from hangscope.causes.case import Case
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.vocabulary import words
from hangscope.model.regex import regex
from hangscope.verdict.answer import comparisons, course, places, stacks

_SENTENCE = regex(r"[^.!?\n。！？]{1,400}[.!?。！？]?")
_STACKS = (stacks.stacks, stacks.doings, stacks.unplaced)
_PLACES = (*_STACKS, places.sides, comparisons.announced, comparisons.other_values, comparisons.last_lines)


def reports_a_stop(case: Case) -> bool:
    """Return whether a reporter says that the job hangs, or took stacks, and the text shows where processes are and nothing that moves on."""
    reported = any(e.prose for e in case.statements.all(Excerpt))
    if not reported or any(read(case) is not None for read in (course.over, course.through, course.moving)):
        return False
    shown = _PLACES if says_it_hangs(case) else _STACKS
    return bool(case.stacks) or any(read(case) is not None for read in shown)


def says_it_hangs(case: Case) -> bool:
    """Return whether a sentence of a person states that the job hangs; a question or a doubt states nothing."""
    texts = (sentence for e in case.statements.all(Excerpt) for sentence in _SENTENCE.findall(e.prose))
    return any(
        words("says_it_hangs").search(text) and not words("doubts").search(text) and text[-1:] not in "?？"
        for text in texts
    )
