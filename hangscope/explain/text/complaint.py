"""Whether a person states in a pasted text that the job hangs; a question, a doubt or a warning states nothing."""

from __future__ import annotations

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.job_logs.vocabulary import words
from hangscope.model.regex import regex

_SENTENCE = regex(r"[^.!?\n。！？]{1,400}[.!?。！？]?")


def says_it_hangs(statements: Statements) -> bool:
    """Return whether a sentence of a person states that the job hangs."""
    texts = (sentence for e in statements.all(Excerpt) for sentence in _SENTENCE.findall(e.prose))
    return any(
        words("says_it_hangs").search(text) and not words("doubts").search(text) and text[-1:] not in "?？"
        for text in texts
    )
