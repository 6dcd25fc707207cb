"""Whether a person states in a pasted text that the job hangs; a question, a doubt or a warning states nothing."""

from __future__ import annotations

from hangscope.explain.statements.statements import Statements
from hangscope.ingest.excerpts.excerpt import Excerpt
from hangscope.ingest.lines.vocabulary import states_a_hang


def says_it_hangs(statements: Statements) -> bool:
    """Return whether a sentence of a person states that the job hangs."""
    return any(states_a_hang(e.prose) for e in statements.all(Excerpt))
